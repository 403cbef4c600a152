"""`klamm transactions`: list, describe, abort, find-hanging (KIP-664)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klamm.model import TopicPartition
from klamm_cli.console.change import DryRun, print_change, tense
from klamm_cli.console.command import examples, new_app
from klamm_cli.console.connect import connected
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    fail,
    print_json,
    print_message,
    print_rows,
)
from klamm_cli.dry_run.transactions import check_open, check_partition

if TYPE_CHECKING:
    from klamm import Admin
    from klamm.admin import HangingTransaction

app = new_app("List, describe and abort transactions; find hanging ones.")

_STATES: Final = {
    name.lower(): name
    for name in ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
}
_MAX_TIMEOUT_MS: Final = 15 * 60_000

TransactionalId = Annotated[str, typer.Argument(metavar="ID", help="The transactional.id.", show_default=False)]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Search only this topic; repeatable.")
]
OlderThan = Annotated[
    int,
    typer.Option(
        "--max-transaction-timeout-ms",
        metavar="MS",
        min=0,
        help="Skip transactions with a record that is younger than this, in milliseconds.",
    ),
]


@app.command("list", epilog=examples("klamm transactions list"))
def list_(
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="List only ids in this state; repeatable.")
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="NUMBER", help="List only ids of this producer; repeatable."),
    ] = None,
    longer_than_ms: Annotated[
        int,
        typer.Option(
            "--running-longer-than-ms",
            metavar="MS",
            min=0,
            help="List only transactions that are open for longer than this, in milliseconds.",
        ),
    ] = 0,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """List transactional ids with their producers and states."""
    if unknown := [name for name in state or () if name.lower() not in _STATES]:
        fail(f"there is no state {', '.join(unknown)}; expected {', '.join(_STATES.values())}", ExitStatus.USAGE)
    with connected(bootstrap, timeout) as admin:
        listed = admin.list_transactions(
            states=state or (), producer_ids=producer_id or (), longer_than_ms=longer_than_ms
        )
    rows = [
        (transaction.transactional_id, transaction.producer_id, transaction.state) for transaction in listed.values()
    ]
    print_rows(("transactional_id", "producer_id", "state"), rows, as_json=as_json)


@app.command("describe", epilog=examples("klamm transactions describe payments-1"))
def describe(
    transactional_id: TransactionalId,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Show the state, producer and partitions of an id."""
    with connected(bootstrap, timeout) as admin:
        described = admin.describe_transactions([transactional_id])[transactional_id]
    is_open = described.start_time_ms >= 0
    facts: dict[str, str | int | None] = {
        "transactional_id": described.transactional_id,
        "state": described.state,
        "producer_id": described.producer_id,
        "producer_epoch": described.producer_epoch,
        "timeout_ms": described.transaction_timeout_ms,
        "open_ms": round(time.time() * 1000) - described.start_time_ms if is_open else None,
    }
    partitions = [str(tp) for tp in described.partitions]
    if as_json:
        print_json({**facts, "partitions": partitions})
        return
    print_rows(tuple(facts), [tuple(facts.values())], as_json=False)
    if partitions:
        print_message(f"partitions: {', '.join(partitions)}")


@app.command(
    "abort",
    epilog=examples(
        "klamm transactions abort payments-1 --fence",
        "klamm transactions abort --hanging-in orders:2 --start-offset 41",
    ),
)
def abort(
    transactional_id: Annotated[str | None, typer.Argument(metavar="ID", help="The transactional.id.")] = None,
    fence: Annotated[
        bool, typer.Option("--fence", help="Fence the producer, too. Otherwise it may begin the next transaction.")
    ] = False,
    partition: Annotated[
        str | None,
        typer.Option(
            "--hanging-in", metavar="TOPIC:NUMBER", help="The partition of a hanging transaction, instead of an id."
        ),
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option(
            "--start-offset", metavar="OFFSET", min=0, help="The offset where the hanging transaction begins."
        ),
    ] = None,
    older_than_ms: OlderThan = _MAX_TIMEOUT_MS,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Abort the open transaction of an id, or a hanging one.

    `klamm transactions find-hanging` shows the partition and the first offset of each hanging transaction."""
    is_hanging = partition is not None and start_offset is not None
    if (transactional_id is not None) == is_hanging or (partition is None) != (start_offset is None):
        fail("expected either a transactional id, or --hanging-in and --start-offset", ExitStatus.USAGE)
    verb = tense(validate_only, "aborted", "abort")
    with connected(bootstrap, timeout) as admin:
        if transactional_id is None:
            assert partition is not None
            assert start_offset is not None
            tp = _parse_partition(partition)
            hanging = _find_hanging(admin, tp, start_offset, older_than_ms)
            if validate_only:
                check_partition(admin.describe_topics([tp.topic])[tp.topic])
            else:
                admin.abort_hanging_transaction(hanging)
            document: dict[str, object] = {"aborted": None, "partition": str(tp), "start_offset": start_offset}
            line = f"{verb} the transaction in {tp} that begins at {start_offset}"
        else:
            open_in = _abort(admin, transactional_id, fence=fence, validate_only=validate_only)
            document = {"aborted": transactional_id, "fenced": fence, "partitions": open_in}
            line = f"{verb} the transaction of {transactional_id!r} in {', '.join(open_in) or 'no partition'}"
            if fence:
                line += f", and {'fence' if validate_only else 'fenced'} its producer"
    print_change(document, line, as_json=as_json, validate_only=validate_only)


def _abort(admin: Admin, transactional_id: str, *, fence: bool, validate_only: bool) -> list[str]:
    """Aborts the open transaction of an id. With `validate_only`, only checks that there is one. Returns the partitions
    that the transaction may have written to."""
    described = admin.describe_transactions([transactional_id])[transactional_id]
    if fence and not validate_only:
        admin.fence_producers([transactional_id])
    elif not validate_only:
        admin.abort_transaction(transactional_id)
    elif not fence:
        check_open(described)
    return [str(tp) for tp in described.partitions]


@app.command("find-hanging", epilog=examples("klamm transactions find-hanging"))
def find_hanging(
    topic: Topics = None,
    older_than_ms: OlderThan = _MAX_TIMEOUT_MS,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Find open transactions that no coordinator knows."""
    with connected(bootstrap, timeout) as admin:
        found = admin.find_hanging_transactions(
            _partitions(admin, topic or ()), max_transaction_timeout_ms=older_than_ms
        )
    columns = ("topic", "partition", "start_offset", "producer_id", "producer_epoch", "last_written_ms_ago")
    print_rows(columns, [_hanging_row(transaction) for transaction in found], as_json=as_json)


def _hanging_row(transaction: HangingTransaction) -> tuple[str | int, ...]:
    producer = transaction.producer
    silent_ms = round(time.time() * 1000) - producer.last_timestamp_ms
    return *transaction.tp, producer.current_txn_start_offset, producer.producer_id, producer.producer_epoch, silent_ms


def _find_hanging(admin: Admin, tp: TopicPartition, start_offset: int, older_than_ms: int) -> HangingTransaction:
    """Returns the hanging transaction that begins at this offset. Ends the command if there is none."""
    found = admin.find_hanging_transactions([tp], max_transaction_timeout_ms=older_than_ms)
    hanging = next(
        (transaction for transaction in found if transaction.producer.current_txn_start_offset == start_offset), None
    )
    if hanging is None:
        fail(f"{tp} has no hanging transaction that begins at {start_offset}", ExitStatus.FAILED)
    return hanging


def _partitions(admin: Admin, topics: Iterable[str]) -> list[TopicPartition]:
    """Returns the partitions of `topics` that have a leader. If `topics` is empty, returns the partitions of all
    topics."""
    described = admin.describe_topics(topics) if topics else admin.list_topics(include_internal=True)
    return [
        TopicPartition(name, partition.partition)
        for name, topic in described.items()
        for partition in topic.partitions
        if partition.leader >= 0
    ]


def _parse_partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition(":")
    if not topic or not (number.isascii() and number.isdecimal()):
        fail(f"--hanging-in: {text!r} is not valid, expected topic:partition", ExitStatus.USAGE)
    return TopicPartition(topic, int(number))
