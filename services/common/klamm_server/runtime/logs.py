"""Sets up logging: every process logs to stderr, one line for each event, as text or JSON.

text    2026-01-31T12:00:00.123Z INFO klamm_broker.server broker=1 serving port=9094
json    {"ts": "2026-01-31T12:00:00.123Z", "level": "INFO", "logger": "klamm_broker.server",
         "message": "broker=1 serving port=9094", "node": "klamm-broker-1", "fields": {"broker": 1, "port": 9094}}

`fields` are the name=value pairs of the message, with numbers as numbers; `exception` is a traceback. A line of text
has no control characters, and the lines of a traceback are indented, because clients choose some of the text and could
fake lines."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from functools import lru_cache
from typing import Any, Final

from klamm.printable import printable

FORMATS: Final = ("auto", "text", "json")
"""The log formats. auto means text on a terminal and json otherwise."""
_PLACEHOLDER = re.compile(r"(?:([A-Za-z_][\w.]*)=['\"]?)?%(?:%|[-+ #0]*\d*(?:\.\d+)?[a-zA-Z])")
_NUMBERS: Final = (bool, int, float)


class _UtcFormatter(logging.Formatter):
    """Formats the times of records in UTC."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


class LineFormatter(_UtcFormatter):
    """Formats records as text. Tracebacks follow the line, indented. Control characters are escaped."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    return "\n".join(f"  {printable(line)}" for line in text.split("\n"))


class JsonFormatter(_UtcFormatter):
    """Formats records as one JSON object per line. `node` names the process."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "node": self._node,
        }
        if fields := _fields(record):
            line["fields"] = fields
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Returns the arguments that have a name in the message's template."""
    arguments = record.args
    if not isinstance(arguments, tuple):
        return {}
    names = _names(str(record.msg))
    # A template may use its arguments in another way than this project's templates do (`%*d`).
    if len(names) != len(arguments):
        return {}
    named = ((name, argument) for name, argument in zip(names, arguments, strict=True) if name)
    return {name: argument if isinstance(argument, _NUMBERS) else str(argument) for name, argument in named}


@lru_cache(maxsize=1024)
def _names(template: str) -> tuple[str, ...]:
    """Returns the names before the arguments of a message, in order. An argument without a name has an empty one."""
    return tuple(match[1] or "" for match in _PLACEHOLDER.finditer(template) if not match[0].endswith("%%"))


def set_up_logging(level: str, log_format: str = "auto", *, node: str) -> None:
    """Sends all records from `level` ("INFO") on to stderr, and nowhere else. `log_format` is one of FORMATS."""
    assert log_format in FORMATS, log_format
    handler = logging.StreamHandler(sys.stderr)
    is_text = log_format == "text" or (log_format == "auto" and sys.stderr.isatty())
    handler.setFormatter(LineFormatter() if is_text else JsonFormatter(node))
    logging.basicConfig(level=level, handlers=[handler], force=True)
