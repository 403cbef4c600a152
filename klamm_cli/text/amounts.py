"""Amounts as people read them."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def in_bytes(count: float) -> str:
    """Returns a number of bytes with its unit, such as "3.4 MiB"."""
    power = 0
    while count >= 1024 and power < len(_UNITS) - 1:
        count /= 1024
        power += 1
    return f"{count:.1f} {_UNITS[power]}" if power else f"{count:.0f} B"


def record_count(count: int) -> str:
    """Returns a number of records, such as "1 record" or "1,234 records"."""
    return counted(count, "record")


def counted(count: int, noun: str) -> str:
    """Returns a number with a noun whose plural ends with s, such as "1 partition" or "3 partitions"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(time_ms: float) -> str:
    """Returns a length of time with one unit, such as "0.3 s", "12 s", "4 min", "2.5 h" or "3.1 d"."""
    seconds = time_ms / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h" if seconds < 48 * 3_600 else f"{seconds / 86_400:.1f} d"
