"""Parses times as people type them."""

from __future__ import annotations

import datetime
import re

_DURATION = re.compile(r"(\d{1,18})(ms|s|m|h|d)", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_time_ms(text: str, *, now_ms: int) -> int | None:
    """Returns the time in milliseconds since the epoch, or None if `text` is no time.

    `text` may be an ISO 8601 time (local without a zone), `now`, `today` (its first moment, local) or an age: `90s`,
    `15m`, `2h`, `7d`. A time before the epoch becomes the epoch, because no record is older."""
    if text == "now":
        return now_ms
    try:
        if text == "today":
            midnight = datetime.datetime.fromtimestamp(now_ms / 1000).replace(hour=0, minute=0, second=0, microsecond=0)
            return int(midnight.timestamp() * 1000)
        if (age_ms := parse_duration_ms(text)) is not None:
            return max(0, now_ms - age_ms)
        return max(0, int(datetime.datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError):
        return None


def parse_duration_ms(text: str) -> int | None:
    """Returns a duration such as `90s`, `15m`, `2h` or `7d` in milliseconds, or None if `text` is none."""
    match = _DURATION.fullmatch(text)
    return int(match[1]) * _UNIT_MS[match[2]] if match else None
