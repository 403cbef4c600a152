"""Counts equal events within a minute.

The first event is reported immediately, with a count of 1. Equal events in the next minute are reported together when
the minute ends, as one event with their number. Then another minute begins. A minute without such an event is the last.
So an event that happens all the time is reported once a minute, and the reported counts add up to the real number.

Open tallies use at most OPEN_MAX_BYTES. Beyond this, the tally whose minute ends first is reported early.

Invariants: tallies are in the order in which their minutes end; `held_bytes` is the sum of their sizes.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from klamm_server.security.audit.events import AuditEvent

MINUTE_MS: Final = 60_000
OPEN_MAX_BYTES: Final = 4 * 1024**2
_OVERHEAD_BYTES: Final = 1_000
"""An event and its tally, without its texts."""


class TalliedEvent(NamedTuple):
    """An event, and how often it happened."""

    event: AuditEvent
    times: int
    begin_ms: int
    end_ms: int


class Tally:
    """The count of one event. Code that holds an open tally may increase it directly."""

    __slots__ = ("begin_ms", "count", "event", "is_open", "size_bytes")

    def __init__(self, event: AuditEvent, now_ms: int) -> None:
        self.event = event
        self.begin_ms = now_ms
        self.count = 0
        """The number of events that were not reported yet."""
        self.is_open = True
        self.size_bytes = _OVERHEAD_BYTES + 4 * len("".join(event[3:]))


class Tallies:
    """See the module's docstring. Times are of one clock that does not go back."""

    def __init__(self) -> None:
        # In a dict, removing the first key becomes slow after many removals.
        self._open: OrderedDict[AuditEvent, Tally] = OrderedDict()
        self.held_bytes = 0

    def __len__(self) -> int:
        """The number of open tallies."""
        return len(self._open)

    def count(self, event: AuditEvent, now_ms: int) -> tuple[Tally, list[TalliedEvent]]:
        """Counts an event. Returns its tally, and the lines to write now."""
        tallied = self.end_minutes(now_ms)
        tally = self._open.get(event)
        if tally is not None:
            tally.count += 1
            return tally, tallied
        tally = self._open[event] = Tally(event, now_ms)
        self.held_bytes += tally.size_bytes
        tallied.append(TalliedEvent(event, 1, now_ms, now_ms))
        while self.held_bytes > OPEN_MAX_BYTES:
            tallied += self._close(next(iter(self._open.values())), now_ms)
        return tally, tallied

    def end_minutes(self, now_ms: int) -> list[TalliedEvent]:
        """Returns the lines to write for the minutes that have ended."""
        tallied: list[TalliedEvent] = []
        while self._open:
            first = next(iter(self._open.values()))
            if now_ms < first.begin_ms + MINUTE_MS:
                break
            rest = self._close(first, now_ms)
            if rest:
                self._open_again(first, now_ms)
            tallied += rest
        return tallied

    def close(self, now_ms: int) -> list[TalliedEvent]:
        """Ends the counting. Returns the lines to write for all open tallies."""
        return [tallied for tally in list(self._open.values()) for tallied in self._close(tally, now_ms)]

    def _close(self, tally: Tally, now_ms: int) -> list[TalliedEvent]:
        del self._open[tally.event]
        self.held_bytes -= tally.size_bytes
        tally.is_open = False
        if not tally.count:
            return []
        return [TalliedEvent(tally.event, tally.count, tally.begin_ms, now_ms)]

    def _open_again(self, tally: Tally, now_ms: int) -> None:
        tally.is_open, tally.begin_ms, tally.count = True, now_ms, 0
        self._open[tally.event] = tally
        self.held_bytes += tally.size_bytes
