"""The command `klamm`."""

from __future__ import annotations

from typing import Annotated

import typer

from klamm.cli.cluster import cluster
from klamm.cli.configs import app as configs
from klamm.cli.consume import consume
from klamm.cli.groups import app as groups
from klamm.cli.output import ExitStatus
from klamm.cli.produce import produce
from klamm.cli.topics import app as topics
from klamm.cli.up import up
from klamm.version import __version__

app = typer.Typer(
    name="klamm",
    help="Klamm: an event-streaming platform in Python, with Kafka's formats, names and guarantees.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(up)
app.add_typer(topics, name="topics")
app.add_typer(configs, name="configs")
app.add_typer(groups, name="groups")
app.command()(produce)
app.command()(consume)
app.command()(cluster)


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


def main() -> None:
    """The entry point; Ctrl-C ends any command without a traceback."""
    try:
        app()
    except KeyboardInterrupt:
        raise SystemExit(int(ExitStatus.INTERRUPTED)) from None
