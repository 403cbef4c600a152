"""Parses durations and times from the command line."""

from __future__ import annotations

import datetime
import re
from typing import Final

from klamm.errors import ConfigError

_UNITS_MS: Final = {"second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}


def duration_ms(text: str) -> int:
    """Returns the milliseconds of a text such as `"10 minutes"`. Raises ConfigError."""
    match = re.fullmatch(r"(\d+) *(second|minute|hour|day)s?", text.strip())
    if match is None:
        raise ConfigError(f"{text!r}: expected a whole number of seconds, minutes, hours or days, such as '10 minutes'")
    return int(match[1]) * _UNITS_MS[match[2]]


def utc_time(text: str) -> datetime.datetime:
    """Returns the time of a text such as `"2013-01-31"` or `"2013-01-31T09:30:00Z"`. Without a zone it is in UTC.
    Raises ConfigError."""
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{text!r}: expected a time such as 2013-01-31 or 2013-01-31T09:30:00Z") from None
    return time.astimezone(datetime.UTC) if time.tzinfo else time.replace(tzinfo=datetime.UTC)
