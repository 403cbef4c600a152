"""`klamm produce`: records from standard input or a file, one a line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from klamm.cli.output import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    ExitStatus,
    Json,
    fail,
    one_line_errors,
    parse_assignments,
    print_json,
    say,
)

Line = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int | None]
"""key, value, headers, partition"""

_REFRESH_RECORDS = 2_000


def produce(
    topic: Annotated[str, typer.Argument(help="Where to.")],
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read this instead of standard input.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-k", help="Splits each line into key and value.")
    ] = None,
    json_lines: Annotated[
        bool,
        typer.Option("--json-lines", help='Each line is {"key": .., "value": .., "headers": {..}, "partition": ..}.'),
    ] = False,
    partition: Annotated[int | None, typer.Option(min=0, help="Everything to this partition.")] = None,
    acks: Annotated[str, typer.Option(help="all, 1 or 0.")] = "all",
    compression: Annotated[str, typer.Option(help="none, gzip, snappy, lz4 or zstd.")] = "none",
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="NAME=VALUE", help="Any other producer setting.")
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Produces each line as a record. Ends with FAILED if any record was not acknowledged."""
    from klamm import Producer

    settings: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "acks": acks,
        "compression.type": compression,
        **parse_assignments(config or [], "--config"),
    }
    tally = _Tally()
    with one_line_errors(bootstrap), _source(file) as source, Producer(settings) as producer:
        with _progress(source, file) as advance:
            for key, value, headers, line_partition in _lines(source, key_separator, json_lines, advance):
                producer.send(
                    topic,
                    value,
                    key=key,
                    headers=headers,
                    partition=partition if line_partition is None else line_partition,
                    on_delivery=tally,
                )
                if tally.failure is not None:
                    break
            producer.flush()
        if tally.failure is not None:
            raise tally.failure
    if as_json:
        print_json({"topic": topic, "records": tally.delivered})
    else:
        say(f"{tally.delivered} records acknowledged by {topic}")


class _Tally:
    """Counts acknowledgements; remembers the first failure."""

    def __init__(self) -> None:
        self.delivered = 0
        self.failure: BaseException | None = None

    def __call__(self, metadata: Any, error: BaseException | None) -> None:
        if error is None:
            self.delivered += 1
        elif self.failure is None:
            self.failure = error


def _source(file: Path | None) -> BinaryIO:
    if file is None:
        return sys.stdin.buffer
    try:
        return file.open("rb")
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}", ExitStatus.USAGE)


def _lines(source: BinaryIO, separator: str | None, json_lines: bool, advance: Any) -> Iterator[Line]:
    for number, raw in enumerate(source, 1):
        line = raw.rstrip(b"\r\n")
        if json_lines:
            yield _json_line(line, number)
        elif separator is not None:
            key, found, value = line.partition(separator.encode())
            if not found:
                fail(f"line {number} has no {separator!r} between key and value", ExitStatus.USAGE)
            yield key, value, [], None
        else:
            yield None, line, [], None
        advance(number, len(raw))


def _json_line(line: bytes, number: int) -> Line:
    try:
        document = json.loads(line)
        headers = [(name, _as_bytes(value)) for name, value in document.get("headers", {}).items()]
        return _as_bytes(document.get("key")), _as_bytes(document.get("value")), headers, document.get("partition")
    except (ValueError, AttributeError) as error:
        fail(f'line {number} is not a JSON object with "key", "value", "headers", "partition": {error}')


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
