"""The command `klamm`: its commands by name. A command's module is loaded when the command line names it, so that help
and completion cost little and no command pays for another."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from klamm.version import __version__
from klamm_cli.console.bootstrap_option import make_bootstrap_option, offer_bootstrap
from klamm_cli.console.coercion import convert_only_what_must_be
from klamm_cli.console.command_config import offer_command_config
from klamm_cli.console.completion import install_completion, prepare_completion, show_completion, with_shell
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.folding import folded
from klamm_cli.console.streams import is_broken_pipe

_UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]
"""Typer's base class of errors in a command line. Typer has no public name for it."""

COMMANDS: Final = {
    "up": ("klamm_cli.commands.up_command", "Run a cluster on this machine."),
    "topics": ("klamm_cli.commands.topics", "Create, list, describe, extend, size and delete topics; elect leaders."),
    "produce": ("klamm_cli.commands.produce", "Produce records from standard input or a file."),
    "consume": ("klamm_cli.commands.consume", "Print the records of a topic."),
    "groups": ("klamm_cli.commands.groups", "List, describe, reset and delete consumer groups."),
    "configs": ("klamm_cli.commands.configs", "Describe and alter configs of topics and brokers."),
    "users": ("klamm_cli.commands.users", "List, create and delete users who log in by SCRAM; set their passwords."),
    "acls": ("klamm_cli.commands.acls", "List, add, remove and check access control list entries."),
    "quotas": ("klamm_cli.commands.quotas", "List, set and remove quotas of users, client ids and addresses."),
    "format": ("klamm_cli.commands.format", "Write the first users of a new cluster."),
    "cluster": ("klamm_cli.commands.cluster", "Show servers, disks and the quorum; add and remove servers."),
    "certs": ("klamm_cli.commands.certs", "Make certificates for development; show what a certificate contains."),
    "doctor": ("klamm_cli.doctor.command", "Find problems of a cluster or a machine, and show what to do."),
    "top": ("klamm_cli.top.command", "Show the rates and lags of the cluster, until Ctrl-C."),
    "perf": ("klamm_cli.perf.command", "Measure how fast this cluster is with your records."),
    "transactions": ("klamm_cli.commands.transactions", "List, describe and abort transactions; find hanging ones."),
    "ledgers": ("klamm_cli.commands.ledgers", "List, describe and delete the batch ledgers of queries."),
    "reassign": ("klamm_cli.commands.reassign", "Move partitions to other brokers; change replication factors."),
    "log-dirs": ("klamm_cli.commands.log_dirs", "Show brokers' log directories; move replicas between them."),
    "log": ("klamm_cli.commands.log", "Show the files of a data directory; find and repair damage."),
    "pipeline": ("klamm_cli.commands.pipeline", "List and run data pipelines on Spark."),
}
"""The module of each command, whose `app` is the command, and the command's summary in the list of commands."""


class _LazyGroup(TyperGroup):
    """The group of all commands. It knows their names and summaries, and loads the module of the command that the user
    calls."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.params.append(make_bootstrap_option())
        convert_only_what_must_be(self)

    def resolve_command(self, context: Any, args: list[str]) -> Any:
        name, known, rest = super().resolve_command(context, args)
        if name is None or known is None:
            return name, known, rest
        command = typer.main.get_command(importlib.import_module(COMMANDS[name][0]).app)
        command.name = name
        offer_command_config(command)
        offer_bootstrap(command)
        convert_only_what_must_be(command)
        return name, command, rest


app = typer.Typer(
    name="klamm",
    cls=_LazyGroup,
    help="An event-streaming platform in Python, with Kafka's formats, names and guarantees.",
    epilog="`klamm COMMAND --help` explains a command and its options.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _loaded_later() -> None:
    """Stands in the list of commands for a command whose module is not loaded yet."""


for _name, (_, _summary) in COMMANDS.items():
    app.command(_name, help=_summary, short_help=_summary)(_loaded_later)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"klamm {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    install: Annotated[
        str | None,
        typer.Option(
            "--install-completion",
            metavar="[SHELL]",
            callback=install_completion,
            is_eager=True,
            help="Install completion for bash, zsh or fish [default: this shell].",
        ),
    ] = None,
    show: Annotated[
        str | None,
        typer.Option(
            "--show-completion",
            metavar="[SHELL]",
            callback=show_completion,
            is_eager=True,
            help="Print the completion script of bash, zsh or fish [default: this shell].",
        ),
    ] = None,
) -> None:
    """Options of the command itself."""


def run() -> int:
    """Runs the command of `sys.argv`; returns the exit status. Raises OSError if a file or stream fails."""
    try:
        prepare_completion()
        # Typer turns KeyboardInterrupt into an exit status, too.
        status: int = app(with_shell(sys.argv[1:]), prog_name="klamm", standalone_mode=False) or 0
        sys.stdout.flush()
    except _UsageError as error:
        return _print_usage(error)
    except SystemExit as ended:
        # Typer turns a broken pipe into an exit status of 1.
        if isinstance(ended.__context__, OSError) and is_broken_pipe(ended.__context__):
            raise ended.__context__ from None
        raise
    except Exception as error:
        from klamm.errors import ConfigError
        from klamm.printable import printable

        if not isinstance(error, ConfigError):
            raise
        typer.echo(folded(f"klamm: {printable(str(error))}", sys.stderr), err=True)
        return ExitStatus.USAGE
    return status


def _print_usage(error: Any) -> ExitStatus:
    if error.ctx is not None and type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.format_message())
    else:
        command = error.ctx.command_path if error.ctx is not None else "klamm"
        text = f"klamm: {error.format_message().rstrip('.')} (see `{command} --help`)"
        typer.echo(folded(text, sys.stderr), err=True)
    return ExitStatus.USAGE
