"""`klamm up`: the whole cluster in one process, for a laptop, a test or CI."""

from __future__ import annotations

import pathlib
from typing import Annotated

import typer

from klamm.cli.output import ExitStatus, fail, parse_assignments
from klamm.config import DEFAULT_PORT


def up(
    data_dir: Annotated[pathlib.Path, typer.Option(help="Where records and metadata are kept.")] = pathlib.Path(
        "klamm-data"
    ),
    host: Annotated[str, typer.Option(help="Address to listen on and to tell clients.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port; 0 picks a free one.")] = DEFAULT_PORT,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A server setting by Kafka's name; may be repeated."),
    ] = None,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "WARNING",
) -> None:
    """Runs controller, broker and coordinator in this process until Ctrl-C or SIGTERM.

    Prints one line with the address when it is ready."""
    try:
        from klamm_embedded.cluster import run
    except ModuleNotFoundError as error:
        fail(f"{error.name} is missing: pip install 'klamm[server]'", ExitStatus.FAILED)
    settings = {"log.level": log_level, **parse_assignments(set_ or [], "--set")}
    raise typer.Exit(run(data_dir=data_dir, host=host, port=port, settings=settings))
