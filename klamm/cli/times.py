"""Times as people type them."""

from __future__ import annotations

import datetime
import re
import time

from klamm.errors import ConfigError

_AGO = re.compile(r"(\d+)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_time_ms(text: str) -> int:
    """Milliseconds since the epoch of an ISO time (local without a zone), or of so long ago: `90s`, `15m`, `2h`, `7d`.

    Times before the epoch are the epoch: no record is older. Raises ConfigError."""
    if match := _AGO.fullmatch(text):
        return max(0, time.time_ns() // 1_000_000 - int(match[1]) * _UNIT_MS[match[2]])
    try:
        moment = datetime.datetime.fromisoformat(text)
        return max(0, int(moment.timestamp() * 1000))
    except (ValueError, OverflowError):
        raise ConfigError(f"{text!r} is no time: expected 2026-01-31T12:00:00 or an age such as 15m") from None
