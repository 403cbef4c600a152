"""`klamm up`: the whole cluster in one process, for a laptop, a test or CI."""

from __future__ import annotations

import pathlib
from typing import Annotated

import typer

from klamm.cli.output import ExitStatus, fail, parse_assignments
from klamm.config import DEFAULT_PORT

DEFAULT_KAFKA_PORT = 9092
MAX_PROCESSES = 32
"""Of one kind, on one machine."""


def up(
    data_dir: Annotated[pathlib.Path, typer.Option(help="Where records and metadata are kept.")] = pathlib.Path(
        "klamm-data"
    ),
    host: Annotated[str, typer.Option(help="Address to listen on and to tell clients.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port, the first of several processes'; 0 picks free ones.")
    ] = DEFAULT_PORT,
    kafka_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="Port for Kafka clients, the first of several brokers', 10 apart; 9092 unless --port is given, then a"
            " free one.",
        ),
    ] = None,
    controllers: Annotated[int, typer.Option(min=1, max=5, help="Controller processes: 1, 3 or 5.")] = 1,
    brokers: Annotated[int, typer.Option(min=1, max=MAX_PROCESSES, help="Broker processes.")] = 1,
    coordinators: Annotated[int, typer.Option(min=1, max=MAX_PROCESSES, help="Coordinator processes.")] = 1,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A server setting by Kafka's name; may be repeated."),
    ] = None,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "WARNING",
) -> None:
    """Runs a cluster until Ctrl-C or SIGTERM: controller, broker and coordinator in this process, or several of each.

    Prints one line with the address when it is ready. With several of a kind each is a process of its own, ports
    are consecutive (brokers first), and with three brokers topics get three replicas, of which two must be in sync."""
    try:
        from klamm_embedded.up import run
    except ModuleNotFoundError as error:
        fail(f"{error.name} is missing: pip install 'klamm[server]'", ExitStatus.FAILED)
    settings = {"log.level": log_level, **parse_assignments(set_ or [], "--set")}
    raise typer.Exit(
        run(
            controllers=controllers,
            brokers=brokers,
            coordinators=coordinators,
            data_dir=data_dir,
            host=host,
            port=port,
            kafka_port=_kafka_port(port) if kafka_port is None else kafka_port,
            settings=settings,
        )
    )


def _kafka_port(port: int) -> int:
    """Kafka's own beside ours; beside another one, one that is free."""
    return DEFAULT_KAFKA_PORT if port == DEFAULT_PORT else 0
