"""Parses a line of input as a record. A line is a value, or a key, a separator and a value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from klamm.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLine:
    """The parts of a record that a line of input contains."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def line_parser(separator: bytes | None, null: bytes | None) -> Callable[[bytes], RecordLine]:
    """Returns a parser of lines that are values or, with `separator`, keys and values. A key or value that equals
    `null` becomes null.

    The parser raises ConfigError for a line without the separator."""

    def content(part: bytes) -> bytes | None:
        return None if part == null else part

    def parse_value(raw: bytes) -> RecordLine:
        return RecordLine(value=content(_without_line_end(raw)))

    def parse_key_and_value(raw: bytes) -> RecordLine:
        assert separator is not None
        key, found, value = _without_line_end(raw).partition(separator)
        if not found:
            raise ConfigError(f"there is no {separator.decode('utf-8', 'backslashreplace')!r} between key and value")
        return RecordLine(key=content(key), value=content(value))

    return parse_value if separator is None else parse_key_and_value


def _without_line_end(raw: bytes) -> bytes:
    return raw.removesuffix(b"\n").removesuffix(b"\r")
