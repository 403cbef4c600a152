"""`klamm produce`: produces records from standard input or a file, one record per line."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from klamm.errors import EXCEPTIONS, ConfigError, ErrorCode, KlammError
from klamm_cli.console.assignments import parse_assignments
from klamm_cli.console.change import DryRun, print_change
from klamm_cli.console.command import examples, new_app
from klamm_cli.console.command_config import client_settings
from klamm_cli.console.connect import connected
from klamm_cli.console.exit_status import ExitStatus
from klamm_cli.console.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    explain,
    fail,
    one_line_errors,
    print_message,
    status_of,
)
from klamm_cli.console.progress import ProgressBar
from klamm_cli.dry_run.topics import check_creation
from klamm_cli.text.amounts import record_count
from klamm_cli.text.escapes import unescape
from klamm_cli.text.record_lines import RecordLine, line_parser
from klamm_cli.text.size_limits import TOO_LARGE, describe_limits

if TYPE_CHECKING:
    from klamm import Admin, RecordMetadata

_UnknownTopicError: Final = EXCEPTIONS[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
_REFRESH_RECORDS: Final = 2_000
_LONGEST_LINE_BYTES: Final = 100 * 1024 * 1024

app = new_app()


@app.command(
    epilog=examples(
        "seq 1000 | klamm produce numbers",
        "klamm produce orders --file orders.txt --key-separator '\\t'",
        "klamm consume orders -e --from -9 --json | klamm produce copy --json-lines",
    )
)
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)],
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Read this file [default: standard input]."),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-k", metavar="TEXT", help="Split each line at this text into a key and a value."
        ),
    ] = None,
    null: Annotated[
        str | None,
        typer.Option(
            "--null", metavar="TEXT", help="Produce null for a key or value that equals this text [default: never]."
        ),
    ] = None,
    json_lines: Annotated[
        bool,
        typer.Option(
            "--json-lines",
            help="Read each line as a JSON object with any of key, value, headers, partition and timestamp_ms, or"
            " key_base64 and value_base64, as `klamm consume --json` prints them.",
        ),
    ] = False,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", metavar="NUMBER", min=0, help="Produce all records to this partition."),
    ] = None,
    acks: Annotated[
        str,
        typer.Option(
            metavar="ACKS", help="The replicas that must have a record: all (in-sync replicas), 1 (the leader) or 0."
        ),
    ] = "all",
    compression: Annotated[
        str, typer.Option(metavar="TYPE", help="Compress with none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE", help="Set a producer setting by its Kafka name; repeatable."),
    ] = None,
    validate_only: DryRun = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    r"""Produce records from standard input or a file.

    Each line is a record. The command stops at the first line or record that is rejected. The records that were
    acknowledged before it stay. The separator and --null accept the escapes \t, \r, \0, \\, \xHH (a byte) and \uHHHH
    (a character)."""
    from klamm.producer.config import ProducerConfig

    settings: dict[str, object] = {
        **client_settings(bootstrap, ProducerConfig),
        "acks": acks,
        "compression.type": compression,
        **parse_assignments(config or [], "--config"),
    }
    parse = _parser(key_separator, null, json_lines=json_lines)
    tally = _Tally()
    with _source(file) as source:
        with connected(bootstrap, timeout) as admin:
            partition_count = _partition_count(admin, topic)
            if partition_count is None and validate_only:
                check_creation(admin, topic)
        opened = (_checking if validate_only else _sending)(topic, settings, tally)
        with one_line_errors(bootstrap), opened as send, _bar(source, file) as bar:
            began_s, sent_bytes = time.monotonic(), 0
            for number, raw in enumerate(_raw_lines(source), 1):
                try:
                    line = parse(raw)
                    to = partition if line.partition is None else line.partition
                    _check_partition(topic, to, partition_count)
                    send(line, to)
                except KlammError as error:
                    tally.refuse(error, f"line {number}: ")
                if tally.failure is not None:
                    break
                sent_bytes += len(raw)
                if number % _REFRESH_RECORDS == 0:
                    bar.show(sent_bytes, f"{record_count(number)}, {number / (time.monotonic() - began_s):,.0f}/s")
    if as_json or validate_only:
        document = {"topic": topic, "records": tally.delivered}
        summary = f"would produce {record_count(tally.delivered)} to {topic}"
        print_change(document, summary, as_json=as_json, validate_only=validate_only)
    else:
        print_message(f"{record_count(tally.delivered)} acknowledged by {topic}")
    if tally.failure is not None:
        text = tally.where + explain(tally.failure, bootstrap)
        if isinstance(tally.failure, TOO_LARGE):
            with connected(bootstrap, timeout) as admin:
                text += f"; {describe_limits(admin, topic, settings)}"
        fail(text, status_of(tally.failure))


_Send = Callable[[RecordLine, int | None], None]
"""Sends a record to a partition, or checks it."""


@contextlib.contextmanager
def _sending(topic: str, settings: dict[str, object], tally: _Tally) -> Iterator[_Send]:
    """Yields a function that produces a record. Waits at the end until all records are acknowledged or refused."""
    from klamm import Producer

    with Producer(settings) as producer:

        def send(line: RecordLine, partition: int | None) -> None:
            producer.send(
                topic,
                line.value,
                line.key,
                partition=partition,
                timestamp_ms=line.timestamp_ms,
                headers=line.headers,
                on_delivery=tally,
            )

        yield send
        producer.flush()


@contextlib.contextmanager
def _checking(topic: str, settings: dict[str, object], tally: _Tally) -> Iterator[_Send]:
    """Yields a function that makes the producer's checks of a record, and sends nothing."""
    from klamm.producer.config import ProducerConfig
    from klamm.producer.intake import Intake

    intake = Intake(ProducerConfig.parse(settings))

    def check(line: RecordLine, partition: int | None) -> None:
        intake.prepare(topic, line.value, line.key, line.timestamp_ms, line.headers)
        tally(None, None)

    yield check


def _parser(key_separator: str | None, null: str | None, *, json_lines: bool) -> Callable[[bytes], RecordLine]:
    if json_lines:
        if key_separator is not None or null is not None:
            fail("--json-lines and --key-separator or --null exclude each other", ExitStatus.USAGE)
        from klamm_cli.text.record_json import parse_json

        return parse_json
    separator = None if key_separator is None else unescape(key_separator, "--key-separator")
    if separator == b"":
        fail("--key-separator is empty: expected at least one character", ExitStatus.USAGE)
    if separator is not None and b"\n" in separator:
        fail("--key-separator has a line feed, and no line has one inside", ExitStatus.USAGE)
    return line_parser(separator, None if null is None else unescape(null, "--null"))


class _Tally:
    """Counts acknowledged records, and keeps the first error. If the number of its line is known, `where` has it."""

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
        print_message(
            f"klamm: there is no topic {topic} yet; the first record creates it if auto.create.topics.enable is on"
        )
        return None


def _check_partition(topic: str, partition: int | None, partition_count: int | None) -> None:
    """Raises ConfigError if the topic has no such partition. The producer would wait for it to be added."""
    if partition is not None and partition_count is not None and not 0 <= partition < partition_count:
        raise ConfigError(f"{topic} has {partition_count} partitions, numbered from 0; there is no {partition}")


def _source(file: Path | None) -> contextlib.AbstractContextManager[BinaryIO]:
    if file is None:
        if sys.stdin.isatty():
            print_message("a record a line; Ctrl-D ends")
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        return file.open("rb")
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}", ExitStatus.USAGE)


def _raw_lines(source: BinaryIO) -> Iterator[bytes]:
    """Yields lines as they arrive. Cuts a line that is longer than any record may be; the first part is then refused
    for its size."""
    while raw := source.readline(_LONGEST_LINE_BYTES):
        yield raw


def _bar(source: BinaryIO, file: Path | None) -> ProgressBar:
    """Returns the progress of the file. Standard input has no size, so it has no bar."""
    size_bytes = os.fstat(source.fileno()).st_size if file is not None else 0
    return ProgressBar("producing", size_bytes, is_shown=file is not None)
