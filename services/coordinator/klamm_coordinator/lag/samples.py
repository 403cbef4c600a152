"""The history of one number that grows, such as a committed offset, as samples. Pure.

The newest samples are kept, and of older ones, one for each ten minutes of more than an hour. So a rate of now and one
of an hour ago are known, in about 300 bytes.
"""

from __future__ import annotations

from array import array
from typing import Final

NEWEST_KEPT: Final = 8
OLDER_SPACING_MS: Final = 600_000
KEPT_MS: Final = 80 * 60_000
INTERVALS_MIN: Final = 3
"""The fewest intervals between samples that make a rate. A consumer that keeps up commits many records at a time, so
one interval tells nothing."""
VALUES_MIN: Final = 3
"""The fewest values from which the time between two changes is known."""
STANDS_MS: Final = 120_000
"""A number without a new sample for this long does not grow any more, unless its samples are usually rarer."""
RECENT_MS: Final = 600_000
"""`rate_before` ends this long before now."""


class Samples:
    """The samples of one number, each with its time in milliseconds since the epoch."""

    __slots__ = ("_times", "_values")

    def __init__(self) -> None:
        self._times = array("q")
        self._values = array("q")

    def __len__(self) -> int:
        return len(self._times)

    def since_ms(self, value: int) -> int | None:
        """Returns the time since when the number has been `value`, or None if the newest sample has another value."""
        slot = len(self)
        while slot and self._values[slot - 1] == value:
            slot -= 1
        return self._times[slot] if slot < len(self) else None

    def note(self, time_ms: int, value: int) -> None:
        """Adds a sample, unless it is not newer than the last one. A smaller value begins the history again, because
        somebody has set it back."""
        if self._times and time_ms <= self._times[-1]:
            return
        if self._values and value < self._values[-1]:
            del self._times[:], self._values[:]
        self._times.append(time_ms)
        self._values.append(value)
        self._thin(time_ms)

    def _thin(self, now_ms: int) -> None:
        kept: list[int] = []
        newest = max(0, len(self) - NEWEST_KEPT)
        for slot in range(newest):
            is_spaced = not kept or self._times[slot] - self._times[kept[-1]] >= OLDER_SPACING_MS
            if is_spaced and self._times[slot] >= now_ms - KEPT_MS:
                kept.append(slot)
        if len(kept) < newest:
            slots = [*kept, *range(newest, len(self))]
            self._times = array("q", [self._times[slot] for slot in slots])
            self._values = array("q", [self._values[slot] for slot in slots])

    def rate(self, now_ms: int) -> float | None:
        """Returns how much the number grows each second now, or None if that is not known yet."""
        newest = len(self) - 1
        if newest < 0:
            return None
        oldest = max(0, len(self) - NEWEST_KEPT)
        usual_ms = (self._times[newest] - self._times[oldest]) // max(1, newest - oldest)
        if now_ms - self._times[newest] > max(STANDS_MS, INTERVALS_MIN * usual_ms):
            return 0.0
        return self._between(oldest, newest) if newest - oldest >= INTERVALS_MIN else None

    def change_interval_ms(self) -> int | None:
        """Returns the mean time between two changes of the number lately, or None if fewer than three values are
        known."""
        changes = [
            self._times[slot]
            for slot in range(max(0, len(self) - NEWEST_KEPT), len(self))
            if not slot or self._values[slot] != self._values[slot - 1]
        ]
        return (changes[-1] - changes[0]) // (len(changes) - 1) if len(changes) >= VALUES_MIN else None

    def rate_before(self, now_ms: int) -> float | None:
        """Returns how much the number grew each second in about the hour before the last ten minutes, or None if that
        is not known."""
        slots = [slot for slot in range(len(self)) if now_ms - KEPT_MS <= self._times[slot] <= now_ms - RECENT_MS]
        if not slots or self._times[slots[-1]] - self._times[slots[0]] < OLDER_SPACING_MS:
            return None
        return self._between(slots[0], slots[-1])

    def _between(self, first: int, last: int) -> float:
        grown = self._values[last] - self._values[first]
        return 1000 * grown / (self._times[last] - self._times[first])
