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
