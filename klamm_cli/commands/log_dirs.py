"""`klamm log-dirs`: shows brokers' log directories, and moves replicas between them (`kafka-log-dirs`, KIP-113)."""

from __future__ import annotations

from typing import Annotated

import typer

from klamm.errors import raise_first
from klamm.model import TopicPartition
from klamm_cli.console.change import DryRun, print_change, tense
from klamm_cli.console.command import examples, new_app
from klamm_cli.console.connect import connected
from klamm_cli.console.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    print_message,
    print_rows,
)
from klamm_cli.dry_run.log_dirs import move_errors

app = new_app("Show brokers' log directories; move replicas between them.")


@app.command("describe", epilog=examples("klamm log-dirs describe", "klamm log-dirs describe orders --broker 1"))
def describe(
    names: Annotated[list[str] | None, typer.Argument(metavar="TOPIC", help="The topics [default: all].")] = None,
    brokers: Annotated[
        list[int] | None, typer.Option("--broker", metavar="BROKER", help="Only this broker (its node.id); repeatable.")
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Show each replica with its log directory.

    A FUTURE replica is being copied to its directory, and is LAG offsets behind. When it has caught up, it replaces
    the current replica. HELD are the bytes that the leader's retention keeps only because a group has not read them
    (retention.hold.groups). HELD FOR is the slowest group."""
    with connected(bootstrap, timeout) as admin:
        described = admin.describe_log_dirs(brokers)
    rows = [
        (
            broker_id,
            log_dir.path,
            *replica.tp,
            replica.size_bytes,
            replica.log_start_offset,
            replica.log_end_offset,
            "future" if replica.is_future else "current",
            replica.offset_lag,
            replica.held_bytes,
            replica.held_for,
        )
        for broker_id, log_dirs in sorted(described.items())
        for log_dir in log_dirs
        for replica in log_dir.replicas
        if not names or replica.tp.topic in names
    ]
    columns = ("broker", "path", "topic", "partition", "bytes", "start", "end", "state", "lag", "held", "held for")
    print_rows(columns, rows, as_json=as_json)


@app.command(
    "move",
    epilog=examples("klamm log-dirs move orders 0 1 --broker 1 --to /data2"),
)
def move(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)],
    partitions: Annotated[
        list[int], typer.Argument(metavar="NUMBER", help="One or more of its partitions.", show_default=False)
    ],
    broker: Annotated[
        int, typer.Option("--broker", metavar="BROKER", help="The broker that has the replicas (its node.id).")
    ],
    path: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="PATH",
            help="The target, one of the broker's log.dirs, as `klamm log-dirs describe` shows them.",
        ),
    ],
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Start to move replicas to another log directory of their broker.

    The replicas stay in use during the move. A move to a replica's current directory cancels its move in progress. The
    broker config replica.alter.log.dirs.io.max.bytes.per.second limits the speed."""
    from klamm.admin import TopicPartitionReplica

    tps = [TopicPartition(topic, number) for number in partitions]
    with connected(bootstrap, timeout) as admin:
        if validate_only:
            raise_first(list(move_errors(broker, tps, path, admin.describe_log_dirs([broker])[broker])))
        else:
            admin.alter_replica_log_dirs({TopicPartitionReplica(*tp, broker): path for tp in tps})
    line = f"{tense(validate_only, 'began', 'begin')} to move {', '.join(map(str, tps))} of broker {broker} to {path}"
    document = {"broker": broker, "path": path, "moving": [str(tp) for tp in tps]}
    print_change(document, line, as_json=as_json, validate_only=validate_only)
    if not validate_only:
        print_message("klamm log-dirs describe shows how far they are")
