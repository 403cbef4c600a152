"""`klamm consume`: prints the records of a topic to standard output."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final, Self

import typer

from klamm.errors import WakeupError
from klamm.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from klamm.printable import printable
from klamm_cli.console.assignments import parse_assignments
from klamm_cli.console.command import examples, new_app
from klamm_cli.console.command_config import client_settings
from klamm_cli.console.connect import connected
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.interrupt import interrupt_calls
from klamm_cli.console.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Timeout,
    fail,
    one_line_errors,
    print_message,
)
from klamm_cli.console.progress import ProgressBar
from klamm_cli.console.streams import is_reader_gone
from klamm_cli.text.amounts import in_bytes, record_count
from klamm_cli.text.escapes import unescape
from klamm_cli.text.positions import POSITION_HELP, Beginning, End, Position, offsets_at, parse_position
from klamm_cli.text.record_format import Formatter, key_and_value_formatter, parse_format, value_formatter

if TYPE_CHECKING:
    from klamm import Consumer

_POLL_MS: Final = 500
_POLL_RECORDS: Final = 10_000
"""The largest number of records in one poll. They are written in one call, so a slow terminal or pipe delays at most
this many records."""
_TAB: Final = "\\t"
_NULL: Final = "null"

app = new_app()


@app.command(
    epilog=examples(
        "klamm consume orders --from beginning --exit",
        "klamm consume orders --from -5 --key",
        "klamm consume orders --from 2026-01-31T12:00 --to 2026-01-31T13:00 --json",
        "klamm consume orders --from @1767225600000 --format '%p:%o %T %k=%s\\n'",
        "klamm consume orders --group billing",
    )
)
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)],
    start: Annotated[
        str, typer.Option("--from", metavar="POSITION", help=f"Begin at this position: {POSITION_HELP}")
    ] = "end",
    until: Annotated[
        str | None,
        typer.Option("--to", metavar="POSITION", help="Stop before this position, in the form of --from."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Consume as a member of this group and commit. --from is then beginning or end. It"
            " applies if there is no committed offset.",
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="NUMBER", help="Consume only this partition; repeatable."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", metavar="NUMBER", min=1, help="Stop after this many records.")
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit", "-e", help="Stop at the end instead of waiting for more records.")
    ] = False,
    isolation_level: Annotated[
        str | None,
        typer.Option(
            "--isolation-level",
            metavar="LEVEL",
            help="Print all records (read_uncommitted), or no records of aborted or open transactions (read_committed)"
            " [default: read_uncommitted].",
        ),
    ] = None,
    show_key: Annotated[bool, typer.Option("--key", help="Print the key and a tab before the value.")] = False,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-k", metavar="TEXT", help="Print the key and this text before the value."),
    ] = None,
    null: Annotated[
        str | None,
        typer.Option(
            "--null",
            metavar="TEXT",
            help="Print this text for a null key or value; an empty text prints nothing"
            f" [default: {_NULL}; with --format nothing].",
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help="Print each record as kcat's -f does. %t topic, %p partition, %o offset, %T timestamp (ms), %k key,"
            " %s value, %h headers; %K and %S: length of the key and the value (bytes, -1: null); %R: length of"
            " the value as 4 bytes, big-endian; %%: a percent sign.",
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print each record as one line of JSON with all its fields, for `klamm produce --json-lines`.",
        ),
    ] = False,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE", help="Set a consumer setting by its Kafka name; repeatable."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    r"""Print the records of a topic.

    The command prints one value per line. The separator, --null and --format accept the escapes \t, \n, \r, \0, \\,
    \xHH (a byte) and \uHHHH (a character). A time without a zone is local."""
    from klamm import Consumer
    from klamm.consumer.config import ConsumerConfig

    position = _parse_position(start, "--from")
    stop = None if until is None else _parse_position(until, "--to")
    if group is not None and partition:
        fail("--group and --partition exclude each other: a group shares out the partitions itself", ExitStatus.USAGE)
    if group is not None and stop is not None:
        fail("--group and --to exclude each other: a group commits what it reads", ExitStatus.USAGE)
    if group is not None and not isinstance(position, Beginning | End):
        fail(f"--from {start} with --group: use `klamm groups reset {group} --to {start}` first", ExitStatus.USAGE)
    settings: dict[str, object] = {
        **client_settings(bootstrap, ConsumerConfig),
        "enable.auto.commit": group is not None,
        "auto.offset.reset": "earliest" if isinstance(position, Beginning) else "latest",
        "allow.auto.create.topics": False,
        "max.poll.records": _POLL_RECORDS,
        **({} if group is None else {"group.id": group}),
        **({} if isolation_level is None else {"isolation.level": isolation_level}),
        **parse_assignments(config or [], "--config"),
    }
    if converted := [name for name in settings if name.endswith(".deserializer")]:
        fail(f"--config {converted[0]}: records are printed as they are; use --format or --json", ExitStatus.USAGE)
    formatter = _formatter(show_key, key_separator, null, format_, as_json)
    with connected(bootstrap, timeout) as admin:
        partition_count = len(admin.describe_topics([topic])[topic].partitions)
    with one_line_errors(bootstrap), Consumer(settings) as consumer:
        end = _End(consumer)
        if group is not None:
            consumer.subscribe([topic], listener=end)
        else:
            tps = _partitions(topic, partition_count, partition)
            consumer.assign(tps)
            _seek(consumer, tps, position)
            if stop is None:
                end.on_partitions_assigned(tps)
            else:
                end.stop_at(offsets_at(stop, tps, _list_offsets(consumer)))
        try:
            # Ctrl-C takes effect between polls. A group commits the records that were polled, so all of them must have
            # been printed.
            with interrupt_calls(consumer.wakeup), _Account(topic, start) as account:
                _copy(consumer, formatter, count, end, account, ends=exit_at_end or stop is not None)
        except WakeupError:
            raise typer.Exit(ExitStatus.INTERRUPTED) from None


def _parse_position(text: str, option: str) -> Position:
    return parse_position(text, option, now_ms=time.time_ns() // 1_000_000)


def _formatter(
    show_key: bool, key_separator: str | None, null: str | None, format_: str | None, as_json: bool
) -> Formatter:
    shows_key = show_key or key_separator is not None
    if as_json + (format_ is not None) + shows_key > 1:
        fail("--json, --format and --key (or --key-separator) exclude each other", ExitStatus.USAGE)
    if as_json:
        from klamm_cli.text.record_json import format_json

        if null is not None:
            fail("--json and --null exclude each other: JSON has its own null", ExitStatus.USAGE)
        return format_json
    if format_ is not None:
        return parse_format(format_, unescape(null or "", "--null"))
    null_bytes = unescape(_NULL if null is None else null, "--null")
    if not shows_key:
        return value_formatter(null_bytes)
    separator = unescape(_TAB if key_separator is None else key_separator, "--key-separator")
    if not separator:
        fail("--key-separator is empty: expected at least one character", ExitStatus.USAGE)
    return key_and_value_formatter(separator, null_bytes)


def _partitions(topic: str, partition_count: int, wanted: list[int] | None) -> list[TopicPartition]:
    if unknown := [number for number in wanted or () if not 0 <= number < partition_count]:
        has = "only partition 0" if partition_count == 1 else f"partitions 0 to {partition_count - 1}"
        fail(f"{topic} has {has}, not {', '.join(map(str, unknown))}", ExitStatus.USAGE)
    return [TopicPartition(topic, number) for number in (wanted or range(partition_count))]


def _seek(consumer: Consumer, tps: list[TopicPartition], position: Position) -> None:
    match position:
        case Beginning():
            consumer.seek_to_beginning(*tps)
        case End():
            consumer.seek_to_end(*tps)
        case _:
            for tp, offset in offsets_at(position, tps, _list_offsets(consumer)).items():
                consumer.seek(tp, offset)


def _list_offsets(consumer: Consumer) -> Callable[[Mapping[TopicPartition, int]], dict[TopicPartition, int]]:
    """Returns a function that finds offsets by timestamp, for `offsets_at`. A consumer with read_committed gets
    the last stable offset as the end of a partition."""

    def list_offsets(timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        asked = set(timestamps.values())
        if asked == {EARLIEST_TIMESTAMP}:
            return consumer.beginning_offsets(timestamps)
        if asked == {LATEST_TIMESTAMP}:
            return consumer.end_offsets(timestamps)
        found = consumer.offsets_for_times(timestamps)
        return {tp: -1 if entry is None else entry.offset for tp, entry in found.items()}

    return list_offsets


class _End:
    """The offset at which to stop in each partition: its end when it was assigned, or the position that --to names.
    Implements a rebalance listener."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._ends: dict[TopicPartition, int] = {}
        self._assigned = False
        self.is_chosen = False

    def stop_at(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Sets the offset of each partition before which the command stops, even if records follow."""
        self._ends.update(offsets)
        self._assigned = self.is_chosen = True

    def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        self._assigned = True
        self._ends.update(self._consumer.end_offsets(partitions))

    def on_partitions_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self._ends.pop(tp, None)

    on_partitions_lost = on_partitions_revoked

    def of(self, tp: TopicPartition) -> int:
        """Returns the offset at which to stop in that partition."""
        return self._ends[tp]

    def left(self) -> int:
        """Returns how many offsets are left until the ends of all assigned partitions."""
        return sum(max(0, end - self._consumer.position(tp)) for tp, end in self._ends.items())

    def reached(self) -> bool:
        """Returns whether all assigned partitions were read up to their ends. A member without partitions has nothing
        to read."""
        return self._assigned and all(self._consumer.position(tp) >= end for tp, end in self._ends.items())


class _Account:
    """Tells a user at a terminal what the command waits for, how far it is, and at the end what it has read."""

    def __init__(self, topic: str, start: str) -> None:
        self._topic, self._start = topic, start
        self._is_shown = sys.stderr.isatty()
        self._began_s = time.monotonic()
        self._records = self._bytes = 0
        self._has_waited = False
        self._bar: ProgressBar | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
        if self._is_shown:
            print_message(f"{record_count(self._records)}, {in_bytes(self._bytes)} read from {self._topic}")

    def wait(self) -> None:
        """Says once that there are no records yet, and how to end."""
        if self._is_shown and not self._has_waited:
            print_message(f"waiting for records of {self._topic} (from {self._start}); Ctrl-C ends")
            self._has_waited = True

    def add(self, count: int, size_bytes: int, left: int | None) -> None:
        """Counts printed records. `left` is how many offsets are left until the end, if the command stops there."""
        self._records += count
        self._bytes += size_bytes
        if left is None or not self._is_shown or sys.stdout.isatty():
            return
        if self._bar is None:
            self._bar = ProgressBar("consuming", self._records + left).__enter__()
        rate = self._records / max(time.monotonic() - self._began_s, 1e-3)
        self._bar.show(self._records, f"{record_count(self._records)}, {rate:,.0f}/s")


def _copy(
    consumer: Consumer, formatter: Formatter, count: int | None, end: _End, account: _Account, *, ends: bool
) -> None:
    """Writes records until `count` records are written or, with `ends`, until every partition was read up to its
    end."""
    left = count
    while left != 0 and not (ends and end.reached()):
        lines: list[bytes] = []
        for tp, records in consumer.poll(timeout_ms=_POLL_MS, max_records=left).items():
            if end.is_chosen and records[-1].offset >= end.of(tp):
                records = [record for record in records if record.offset < end.of(tp)]
                consumer.pause(tp)
            lines += map(formatter, records)
        if not lines and is_reader_gone():
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        if lines:
            content = b"".join(lines)
            _write(sys.stdout.buffer, _shown(content))
            account.add(len(lines), len(content), end.left() if ends else None)
        else:
            account.wait()
        if left is not None:
            left -= len(lines)


def _shown(content: bytes) -> bytes:
    """Returns the content as it is, or with control characters escaped if it goes to a terminal."""
    if not sys.stdout.isatty():
        return content
    return printable(content.decode(errors="backslashreplace"), keep="\n\t").encode()


def _write(output: BinaryIO, content: bytes) -> None:
    """Writes all of `content` and flushes the stream. A stream without a buffer (`python -u`) may accept only a part
    per call."""
    rest = memoryview(content)
    while rest:
        rest = rest[output.write(rest) :]
    output.flush()
