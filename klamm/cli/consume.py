"""`klamm consume`: records to standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klamm.cli.assignments import parse_assignments
from klamm.cli.connect import connected
from klamm.cli.exit_status import ExitStatus
from klamm.cli.interrupt import interrupt_calls
from klamm.cli.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Timeout,
    fail,
    one_line_errors,
)
from klamm.cli.times import parse_time_ms
from klamm.errors import WakeupError
from klamm.model import TopicPartition

if TYPE_CHECKING:
    from klamm import Consumer, ConsumerRecord

_POLL_MS: Final = 500
_BEGINNING, _END = "beginning", "end"


def consume(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    start: Annotated[
        str,
        typer.Option("--from", help="beginning, end, an offset, a time (2026-01-31T12:00) or an age (90s, 15m, 7d)."),
    ] = _END,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="Consume as a member of this group and commit; --from then says where to begin without an offset.",
        ),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only this partition; repeatable.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after so many records.")] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit", "-e", help="Stop at the end, instead of waiting for more.")
    ] = False,
    isolation_level: Annotated[
        str | None,
        typer.Option("--isolation-level", help="read_committed: nothing of aborted or open transactions."),
    ] = None,
    show_key: Annotated[bool, typer.Option("--key", help="Print the key and a tab before the value.")] = False,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE", help="Any other consumer setting by Kafka's name; repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line, with all that a record has.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Prints the records of a topic, a value a line."""
    from klamm import Consumer

    if group is not None and partition:
        fail("--group and --partition exclude each other: a group shares out the partitions itself", ExitStatus.USAGE)
    if group is not None and start not in (_BEGINNING, _END):
        fail(f"--from {start} with --group: use `klamm groups reset {group} --to {start}` first", ExitStatus.USAGE)
    settings: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "enable.auto.commit": group is not None,
        "auto.offset.reset": "earliest" if start == _BEGINNING else "latest",
        "allow.auto.create.topics": False,
        **({} if group is None else {"group.id": group}),
        **({} if isolation_level is None else {"isolation.level": isolation_level}),
        **parse_assignments(config or [], "--config"),
    }
    write = _write_json if as_json else _write_key_and_value if show_key else _write_value
    with connected(bootstrap, timeout) as admin:
        partition_count = len(admin.describe_topics([topic])[topic].partitions)
    with one_line_errors(bootstrap), Consumer(settings) as consumer:
        end = _End(consumer)
        if group is not None:
            consumer.subscribe([topic], listener=end)
        else:
            tps = _partitions(topic, partition_count, partition)
            consumer.assign(tps)
            _seek(consumer, tps, start)
            end.on_partitions_assigned(tps)
        try:
            # Ctrl-C comes between polls: a group commits what was polled, so all of it must have been printed.
            with interrupt_calls(consumer.wakeup):
                _copy(consumer, write, count, end.reached if exit_at_end else _never)
        except WakeupError:
            raise typer.Exit(ExitStatus.INTERRUPTED) from None


def _partitions(topic: str, partition_count: int, wanted: list[int] | None) -> list[TopicPartition]:
    if unknown := [number for number in wanted or () if not 0 <= number < partition_count]:
        has = "only partition 0" if partition_count == 1 else f"partitions 0 to {partition_count - 1}"
        fail(f"{topic} has {has}, not {', '.join(map(str, unknown))}", ExitStatus.USAGE)
    return [TopicPartition(topic, number) for number in (wanted or range(partition_count))]


def _seek(consumer: Consumer, tps: list[TopicPartition], start: str) -> None:
    if start == _BEGINNING:
        consumer.seek_to_beginning(*tps)
    elif start == _END:
        consumer.seek_to_end(*tps)
    elif start.isdecimal():
        # Kept within what each partition holds: one number seldom suits them all.
        starts, ends = consumer.beginning_offsets(tps), consumer.end_offsets(tps)
        for tp in tps:
            consumer.seek(tp, min(max(int(start), starts[tp]), ends[tp]))
    else:
        consumer.seek_to_timestamp(parse_time_ms(start), *tps)


class _End:
    """The end of what was there when each partition was assigned (a rebalance listener)."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._ends: dict[TopicPartition, int] = {}
        self._assigned = False

    def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        self._assigned = True
        self._ends.update(self._consumer.end_offsets(partitions))

    def on_partitions_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self._ends.pop(tp, None)

    on_partitions_lost = on_partitions_revoked

    def reached(self) -> bool:
        """Whether everything was read; a member that was assigned nothing has nothing to read."""
        return self._assigned and all(self._consumer.position(tp) >= end for tp, end in self._ends.items())


def _never() -> bool:
    return False


def _copy(
    consumer: Consumer, write: Callable[[ConsumerRecord], object], count: int | None, reached_end: Callable[[], bool]
) -> None:
    """Writes records until there were `count`, or the end is reached."""
    left = count
    while left != 0 and not reached_end():
        for records in consumer.poll(timeout_ms=_POLL_MS, max_records=left).values():
            for record in records:
                write(record)
            if left is not None:
                left -= len(records)
        sys.stdout.buffer.flush()


def _write_value(record: ConsumerRecord) -> None:
    sys.stdout.buffer.write((record.value or b"") + b"\n")


def _write_key_and_value(record: ConsumerRecord) -> None:
    sys.stdout.buffer.write((record.key or b"") + b"\t" + (record.value or b"") + b"\n")


def _write_json(record: ConsumerRecord) -> None:
    document = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": _readable(record.key),
        "value": _readable(record.value),
        "headers": [[name, _readable(value)] for name, value in record.headers],
    }
    sys.stdout.buffer.write(json.dumps(document, ensure_ascii=False).encode() + b"\n")


def _readable(content: bytes | None) -> str | None:
    """Bytes that are not UTF-8 become backslash escapes: nothing is hidden."""
    return None if content is None else content.decode("utf-8", "backslashreplace")
