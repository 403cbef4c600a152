"""The command `klamm` and its commands."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any, Final

import typer

from klamm.cli.cluster import app as cluster
from klamm.cli.configs import app as configs
from klamm.cli.consume import consume
from klamm.cli.doctor.command import doctor
from klamm.cli.exit_status import ExitStatus
from klamm.cli.groups import app as groups
from klamm.cli.ledgers import app as ledgers
from klamm.cli.log import app as log
from klamm.cli.log_dirs import app as log_dirs
from klamm.cli.output import say
from klamm.cli.pipeline import app as pipeline
from klamm.cli.produce import produce
from klamm.cli.reassign import app as reassign
from klamm.cli.top.command import top
from klamm.cli.topics import app as topics
from klamm.cli.transactions import app as transactions
from klamm.cli.up import SUMMARY, up
from klamm.errors import ConfigError
from klamm.version import __version__

_UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]
"""Typer's base of what is wrong with a command line; it has no public name."""

_OPTIONS_OF_ITS_OWN: Final = {"allow_extra_args": True, "ignore_unknown_options": True}

app = typer.Typer(
    name="klamm",
    help="Klamm: an event-streaming platform in Python, with Kafka's formats, names and guarantees.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("up", help=SUMMARY, add_help_option=False, context_settings=_OPTIONS_OF_ITS_OWN)
def _up(context: typer.Context) -> None:
    raise typer.Exit(up(context.args))


app.add_typer(topics, name="topics")
app.add_typer(configs, name="configs")
app.add_typer(groups, name="groups")
app.add_typer(transactions, name="transactions")
app.add_typer(ledgers, name="ledgers")
app.command()(produce)
app.command()(consume)
app.add_typer(pipeline, name="pipeline")
app.add_typer(reassign, name="reassign")
app.add_typer(log_dirs, name="log-dirs")
app.add_typer(cluster, name="cluster")
app.add_typer(log, name="log")
app.command()(doctor)
app.command()(top)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"klamm {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of the command itself."""


def run() -> int:
    """Runs the command of `sys.argv`; returns the exit status."""
    try:
        # Typer makes an exit status of KeyboardInterrupt, too.
        status: int = app(standalone_mode=False) or 0
        sys.stdout.flush()
    except _UsageError as error:
        return _say_usage(error)
    except ConfigError as error:
        say(f"klamm: {error}")
        return ExitStatus.USAGE
    except BrokenPipeError:
        # Whoever read the output left (`| head`): nobody is there to tell, not even of what Python has yet to write.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitStatus.FAILED
    return status


def _say_usage(error: Any) -> ExitStatus:
    if error.ctx is not None and type(error).__name__ == "NoArgsIsHelpError":
        error.ctx.get_help()  # Typer prints it.
    else:
        command = error.ctx.command_path if error.ctx is not None else "klamm"
        say(f"klamm: {error.format_message().rstrip('.')} (see `{command} --help`)")
    return ExitStatus.USAGE
