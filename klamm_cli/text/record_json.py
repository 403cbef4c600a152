"""Converts records to lines of JSON and back, without loss: `klamm consume --json` prints them, and `klamm produce
--json-lines` reads them.

Bytes that are UTF-8 become a string, and null stays null. Bytes that are not UTF-8 become base64 under another name:
`key_base64` and `value_base64` instead of `key` and `value`, and a header is `[name, text, "base64"]`.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any, Final

from klamm.errors import ConfigError
from klamm_cli.text.record_lines import RecordLine

if TYPE_CHECKING:
    from klamm import ConsumerRecord

_BASE64: Final = "base64"
_NAMES: Final = {"key", "value", "key_base64", "value_base64", "headers", "partition", "timestamp_ms"}
_CONSUMED_NAMES: Final = {"topic", "offset"}
"""Fields that only `klamm consume --json` prints. `klamm produce` ignores them, because a produced record gets its own
topic and offset."""

_encode: Final = json.JSONEncoder(ensure_ascii=False).encode


def format_json(record: ConsumerRecord) -> bytes:
    """Returns the record as one line of JSON."""
    key, value = record.key, record.value
    try:
        document: dict[str, Any] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp,
            "key": None if key is None else key.decode(),
            "value": None if value is None else value.decode(),
            "headers": [[name, None if content is None else content.decode()] for name, content in record.headers],
        }
    except UnicodeDecodeError:
        document = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp,
            **_named("key", key),
            **_named("value", value),
            "headers": [_header(name, content) for name, content in record.headers],
        }
    return _encode(document).encode() + b"\n"


def _named(name: str, content: bytes | None) -> dict[str, str | None]:
    text = _text(content)
    return {name: text} if content is None or text is not None else {f"{name}_base64": _to_base64(content)}


def _header(name: str, content: bytes | None) -> list[str | None]:
    text = _text(content)
    return [name, text] if content is None or text is not None else [name, _to_base64(content), _BASE64]


def _text(content: bytes | None) -> str | None:
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return None


def _to_base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def parse_json(raw: bytes) -> RecordLine:
    """Returns the record that a line of JSON describes. Raises ConfigError."""
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError("expected a JSON object")
    if unknown := sorted(document.keys() - _NAMES - _CONSUMED_NAMES):
        raise ConfigError(f"unknown {', '.join(unknown)}; expected {', '.join(sorted(_NAMES))}")
    return RecordLine(
        key=_content(document, "key"),
        value=_content(document, "value"),
        headers=_headers(document.get("headers")),
        partition=_whole_number(document, "partition"),
        timestamp_ms=_whole_number(document, "timestamp_ms"),
    )


def _content(document: dict[str, Any], name: str) -> bytes | None:
    if (as_base64 := f"{name}_base64") not in document:
        return _to_bytes(document.get(name), name)
    if name in document:
        raise ConfigError(f"{name} and {as_base64} exclude each other")
    return _from_base64(document[as_base64], as_base64)


def _headers(given: Any) -> tuple[tuple[str, bytes | None], ...]:
    """Returns the headers from an object, or from a list of pairs, in which a name may occur twice."""
    given = list(map(list, given.items())) if isinstance(given, dict) else [] if given is None else given
    if not isinstance(given, list) or not all(map(_is_header, given)):
        raise ConfigError('headers: expected {"name": value, ..} or [["name", value], ["name", text, "base64"], ..]')
    return tuple((_name(header[0]), _header_content(header)) for header in given)


def _is_header(header: Any) -> bool:
    return (
        isinstance(header, list)
        and isinstance(header[0] if header else None, str)
        and (len(header) == 2 or (len(header) == 3 and header[2] == _BASE64))
    )


def _name(name: str) -> str:
    _to_bytes(name, "headers")
    return name


def _header_content(header: list[Any]) -> bytes | None:
    what = f"header {header[0]}"
    return _to_bytes(header[1], what) if len(header) == 2 else _from_base64(header[1], what)


def _from_base64(text: Any, what: str) -> bytes:
    try:
        if isinstance(text, str):
            return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        pass
    raise ConfigError(f"{what}: expected a string of base64, not {json.dumps(text)}")


def _whole_number(document: dict[str, Any], name: str) -> int | None:
    number = document.get(name)
    if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
        raise ConfigError(f"{name}: expected a whole number, not {json.dumps(number)}")
    return number


def _to_bytes(value: Any, what: str) -> bytes | None:
    """Returns a string as UTF-8, null as None, and any other value as JSON."""
    if value is None:
        return None
    try:
        return value.encode() if isinstance(value, str) else json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{what}: half a surrogate pair, at character {error.start}, has no UTF-8") from None
