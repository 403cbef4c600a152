"""`klamm consume`: records to standard output."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from klamm.cli.output import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    ExitStatus,
    Json,
    fail,
    one_line_errors,
    parse_assignments,
)
from klamm.cli.times import parse_time_ms
from klamm.model import TopicPartition

_POLL_MS = 500


def consume(
    topic: Annotated[str, typer.Argument(help="Where from.")],
    start: Annotated[
        str, typer.Option("--from", help="beginning, end, an offset, or a time (2026-01-31T12:00 or 15m ago: 15m).")
    ] = "end",
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Consume as this group, from its committed offsets.")
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only this; may be repeated.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after so many records.")] = None,
    exit_at_end: Annotated[bool, typer.Option("--exit", "-e", help="Stop when everything there is was read.")] = False,
    show_key: Annotated[bool, typer.Option("--key", help="Print the key, a tab, then the value.")] = False,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="NAME=VALUE", help="Any other consumer setting.")
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Prints values, one a line, or with --json one object a line with everything a record has."""
    from klamm import Consumer

    if group is not None and partition:
        fail("--group and --partition exclude each other: a group shares out the partitions itself", ExitStatus.USAGE)
    settings: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "enable.auto.commit": group is not None,
        "auto.offset.reset": "earliest" if start == "beginning" else "latest",
        **({} if group is None else {"group.id": group}),
        **parse_assignments(config or [], "--config"),
    }
    write = _write_json if as_json else _write_key_and_value if show_key else _write_value
    with one_line_errors(bootstrap), Consumer(settings) as consumer:
        if group is not None:
            consumer.subscribe([topic])
            ends = None
        else:
            tps = _partitions(consumer, topic, partition)
            consumer.assign(tps)
            _seek(consumer, tps, start)
            ends = consumer.end_offsets(tps) if exit_at_end else None
        _copy(consumer, write, count, ends, idle_ends=exit_at_end and group is not None)


def _partitions(consumer: Any, topic: str, wanted: list[int] | None) -> list[TopicPartition]:
    known = consumer.partitions_for(topic)
    if not known:
        fail(f"there is no topic {topic!r}")
    if unknown := sorted(set(wanted or ()) - set(known)):
        fail(f"{topic} has partitions 0 to {max(known)}, not {', '.join(map(str, unknown))}", ExitStatus.USAGE)
    return [TopicPartition(topic, number) for number in (wanted or sorted(known))]


def _seek(consumer: Any, tps: list[TopicPartition], start: str) -> None:
    if start == "beginning":
        consumer.seek_to_beginning(*tps)
    elif start == "end":
        consumer.seek_to_end(*tps)
    elif start.isdecimal():
        for tp in tps:
            consumer.seek(tp, int(start))
    else:
        found = consumer.offsets_for_times(dict.fromkeys(tps, parse_time_ms(start)))
        ends = consumer.end_offsets(tps)
        for tp in tps:
            offset = found[tp].offset if found.get(tp) is not None else ends[tp]
            consumer.seek(tp, offset)


def _copy(
    consumer: Any, write: Any, count: int | None, ends: dict[TopicPartition, int] | None, *, idle_ends: bool
) -> None:
    """Writes records until `count`, the `ends`, or (with `idle_ends`) an empty poll after the first records."""
    left = count
    started = False
    while ends is None or any(consumer.position(tp) < end for tp, end in ends.items()):
        polled = consumer.poll(timeout_ms=_POLL_MS, max_records=left)
        for records in polled.values():
            for record in records:
                write(record)
            if left is not None:
                left -= len(records)
        sys.stdout.buffer.flush()
        if left == 0 or (idle_ends and started and not polled):
            return
        started = started or bool(polled)


def _write_value(record: Any) -> None:
    sys.stdout.buffer.write((record.value or b"") + b"\n")


def _write_key_and_value(record: Any) -> None:
    sys.stdout.buffer.write((record.key or b"") + b"\t" + (record.value or b"") + b"\n")


def _write_json(record: Any) -> None:
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
