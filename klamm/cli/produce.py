"""`klamm produce`: records from standard input or a file, one a line."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from klamm.cli.assignments import parse_assignments
from klamm.cli.connect import connected
from klamm.cli.exit_status import ExitStatus
from klamm.cli.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    explain,
    fail,
    one_line_errors,
    print_json,
    say,
    status_of,
)
from klamm.errors import EXCEPTIONS, ConfigError, ErrorCode, KlammError

if TYPE_CHECKING:
    from klamm import Admin, RecordMetadata

_UnknownTopicError: Final = EXCEPTIONS[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
_REFRESH_RECORDS: Final = 2_000
_LONGEST_LINE_BYTES: Final = 100 * 1024 * 1024
_JSON_NAMES: Final = {"key", "value", "headers", "partition", "timestamp_ms"}
_CONSUMED_NAMES: Final = {"topic", "offset"}
"""What `klamm consume --json` says beside the above; a record that is produced gets its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What a line of input says of a record."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def produce(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read this file instead of standard input.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-k", help="Each line is a key, this, and a value.")
    ] = None,
    json_lines: Annotated[
        bool,
        typer.Option(
            "--json-lines",
            help="Each line is a JSON object with any of key, value, headers, partition, timestamp_ms,"
            " as `klamm consume --json` prints them.",
        ),
    ] = False,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="All to this partition.")] = None,
    acks: Annotated[str, typer.Option(help="Who must have a record: all in-sync replicas, 1 or 0 brokers.")] = "all",
    compression: Annotated[str, typer.Option(help="none, gzip, snappy, lz4 or zstd.")] = "none",
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE", help="Any other producer setting by Kafka's name; repeatable."),
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Produces each line of the input as a record.

    Stops at the first line or record that is refused; what was acknowledged before it stays."""
    from klamm import Producer

    if json_lines and key_separator is not None:
        fail("--json-lines and --key-separator exclude each other", ExitStatus.USAGE)
    settings: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "acks": acks,
        "compression.type": compression,
        **parse_assignments(config or [], "--config"),
    }
    parse = _json_line if json_lines else _plain_line if key_separator is None else _key_and_value(key_separator)
    tally = _Tally()
    with _source(file) as source:
        with connected(bootstrap, timeout) as admin:
            partition_count = _partition_count(admin, topic)
        with one_line_errors(bootstrap), Producer(settings) as producer, _progress(source, file) as advance:
            for number, raw in enumerate(_raw_lines(source), 1):
                try:
                    line = parse(raw)
                    to = partition if line.partition is None else line.partition
                    _check_partition(topic, to, partition_count)
                    producer.send(
                        topic,
                        line.value,
                        line.key,
                        partition=to,
                        timestamp_ms=line.timestamp_ms,
                        headers=line.headers,
                        on_delivery=tally,
                    )
                except KlammError as error:
                    tally.refuse(error, f"line {number}: ")
                if tally.failure is not None:
                    break
                advance(number, len(raw))
            producer.flush()
    if as_json:
        print_json({"topic": topic, "records": tally.delivered})
    else:
        say(f"{tally.delivered} {'record' if tally.delivered == 1 else 'records'} acknowledged by {topic}")
    if tally.failure is not None:
        fail(tally.where + explain(tally.failure, bootstrap), status_of(tally.failure))


class _Tally:
    """Counts acknowledgements; remembers the first failure, and which line it was where that is known."""

    def __init__(self) -> None:
        self.delivered = 0
        self.failure: KlammError | None = None
        self.where = ""

    def __call__(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        if error is None:
            self.delivered += 1
        else:
            assert isinstance(error, KlammError)
            self.refuse(error)

    def refuse(self, error: KlammError, where: str = "") -> None:
        if self.failure is None:
            self.failure, self.where = error, where


def _partition_count(admin: Admin, topic: str) -> int | None:
    try:
        return len(admin.describe_topics([topic])[topic].partitions)
    except _UnknownTopicError:
        say(f"klamm: there is no topic {topic} yet; the first record creates it if auto.create.topics.enable is on")
        return None


def _check_partition(topic: str, partition: int | None, partition_count: int | None) -> None:
    """The producer would wait for a partition that may yet be added; a command says so at once."""
    if partition is not None and partition_count is not None and not 0 <= partition < partition_count:
        raise ConfigError(f"{topic} has {partition_count} partitions, numbered from 0; there is no {partition}")


def _source(file: Path | None) -> contextlib.AbstractContextManager[BinaryIO]:
    if file is None:
        if sys.stdin.isatty():
            say("a record a line; Ctrl-D ends")
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        return file.open("rb")
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}", ExitStatus.USAGE)


def _raw_lines(source: BinaryIO) -> Iterator[bytes]:
    """Lines as they come; one that is longer than any record may be is cut, and refused for its size."""
    while raw := source.readline(_LONGEST_LINE_BYTES):
        yield raw


def _plain_line(raw: bytes) -> Line:
    return Line(value=_content(raw))


def _key_and_value(separator: str) -> Callable[[bytes], Line]:
    separator_bytes = separator.encode()

    def parse(raw: bytes) -> Line:
        key, found, value = _content(raw).partition(separator_bytes)
        if not found:
            raise ConfigError(f"there is no {separator!r} between key and value")
        return Line(key=key, value=value)

    return parse


def _content(raw: bytes) -> bytes:
    return raw.removesuffix(b"\n").removesuffix(b"\r")


def _json_line(raw: bytes) -> Line:
    try:
        document = json.loads(raw)
    except ValueError as error:
        raise ConfigError(f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError("expected a JSON object")
    if unknown := sorted(document.keys() - _JSON_NAMES - _CONSUMED_NAMES):
        raise ConfigError(f"unknown {', '.join(unknown)}; expected {', '.join(sorted(_JSON_NAMES))}")
    return Line(
        key=_as_bytes(document.get("key")),
        value=_as_bytes(document.get("value")),
        headers=_headers(document.get("headers")),
        partition=_whole_number(document, "partition"),
        timestamp_ms=_whole_number(document, "timestamp_ms"),
    )


def _headers(given: Any) -> tuple[tuple[str, bytes | None], ...]:
    """An object, or a list of pairs where a name occurs twice."""
    pairs = list(map(list, given.items())) if isinstance(given, dict) else [] if given is None else given
    if not isinstance(pairs, list) or not all(map(_is_header, pairs)):
        raise ConfigError('headers: expected {"name": value, ..} or [["name", value], ..]')
    return tuple((name, _as_bytes(value)) for name, value in pairs)


def _is_header(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)


def _whole_number(document: dict[str, Any], name: str) -> int | None:
    number = document.get(name)
    if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
        raise ConfigError(f"{name}: expected a whole number, not {json.dumps(number)}")
    return number


def _as_bytes(value: Any) -> bytes | None:
    """A string as it is, null as null, anything else as JSON."""
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value, ensure_ascii=False).encode()


class _progress:
    """A progress bar on stderr when somebody watches and a file is read; else nothing."""

    def __init__(self, source: BinaryIO, file: Path | None) -> None:
        self._bar: Any = None
        if file is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("producing", total=os.fstat(source.fileno()).st_size)
        self._bytes = 0

    def __enter__(self) -> Any:
        if self._bar is not None:
            self._bar.start()
        return self._advance

    def __exit__(self, *exc_info: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _advance(self, number: int, size_bytes: int) -> None:
        self._bytes += size_bytes
        if self._bar is not None and number % _REFRESH_RECORDS == 0:
            self._bar.update(self._task, completed=self._bytes, description=f"{number} records")
