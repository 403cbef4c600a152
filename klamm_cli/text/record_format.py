"""Formats records as the text that `klamm consume` prints, with kcat's format strings."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from klamm.errors import ConfigError
from klamm_cli.text.escapes import unescape

if TYPE_CHECKING:
    from klamm import ConsumerRecord

Formatter = Callable[["ConsumerRecord"], bytes]
"""Returns the bytes to print for a record, line end included."""


def value_formatter(null: bytes) -> Formatter:
    """Returns a formatter that prints the value and a line feed. It prints `null` for a null value."""

    def format_value(record: ConsumerRecord) -> bytes:
        value: bytes | None = record.value
        return (null if value is None else value) + b"\n"

    return format_value


def key_and_value_formatter(separator: bytes, null: bytes) -> Formatter:
    """Returns a formatter that prints the key, `separator`, the value and a line feed. It prints `null` for a null key
    or value."""

    def format_key_and_value(record: ConsumerRecord) -> bytes:
        key, value = record.key, record.value
        return b"%b%b%b\n" % (null if key is None else key, separator, null if value is None else value)

    return format_key_and_value


def parse_format(text: str, null: bytes) -> Formatter:
    """Returns the formatter for a format string with kcat's `%` tokens and escapes (see `unescape`). Raises
    ConfigError."""
    template: list[bytes] = []
    fields: list[Formatter] = []
    for literal, token in _TOKEN.findall(text):
        template.append(unescape(literal, "--format").replace(b"%", b"%%"))
        if token == "%%":
            template.append(b"%%")
        elif token:
            template.append(b"%b")
            fields.append(_field(token, null))
    joined = b"".join(template)
    return lambda record: joined % tuple([field(record) for field in fields])


_TOKEN: Final = re.compile(r"([^%]*)(%.?|$)", re.DOTALL)
_LENGTH: Final = struct.Struct(">i")


def _field(token: str, null: bytes) -> Formatter:
    fields: dict[str, Formatter] = {
        "%t": lambda record: record.topic.encode(),
        "%p": lambda record: b"%d" % record.partition,
        "%o": lambda record: b"%d" % record.offset,
        "%T": lambda record: b"%d" % record.timestamp,
        "%k": lambda record: null if record.key is None else record.key,
        "%K": lambda record: b"%d" % _length(record.key),
        "%s": lambda record: null if record.value is None else record.value,
        "%S": lambda record: b"%d" % _length(record.value),
        "%R": lambda record: _LENGTH.pack(_length(record.value)),
        "%h": lambda record: b",".join(
            name.encode() + b"=" + (b"NULL" if content is None else content) for name, content in record.headers
        ),
    }
    if token not in fields:
        raise ConfigError(f"--format: {token} is not a token; expected {', '.join(fields)} or %%")
    return fields[token]


def _length(content: bytes | None) -> int:
    return -1 if content is None else len(content)
