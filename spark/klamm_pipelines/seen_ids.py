"""Remembers which ids were seen, by event time. Pure.

Two records with the same id, at most a window apart, are one record and its duplicate. A record more than a window
behind the latest time seen is late, because it is no longer known whether it is a duplicate. So ids are remembered for
two windows behind the latest time: the original of a record that is not late is at most one window older than the
record.

A packed id takes ID_BYTES bytes for its digest and 8 bytes for its time. Digests and times are in separate arrays.
"""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass
from enum import Enum
from typing import Final

ID_BYTES: Final = 16
"""The size of an id's digest. Among 10^15 ids, two have the same digest with a probability of one to half a billion."""
_NEVER: Final = -(2**62)


class Arrival(Enum):
    """The result of judging a record: the first with its id, a duplicate, or too late to know."""

    FIRST = "first"
    DUPLICATE = "duplicate"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class PackedIds:
    """The seen ids in the form in which a state store keeps them."""

    clock_ms: int
    """The latest record time that was seen, in ms."""
    digests: bytes
    times: bytes


class SeenIds:
    """The ids that were seen in one bucket of the stream. `packed` drops ids older than two windows before the latest
    time."""

    def __init__(self, window_ms: int, packed: PackedIds | None = None) -> None:
        assert window_ms >= 0, window_ms
        self._window_ms = window_ms
        self._clock_ms = _NEVER if packed is None else packed.clock_ms
        self._times: dict[bytes, int] = {} if packed is None else _unpacked(packed)

    def __len__(self) -> int:
        return len(self._times)

    def judge(self, record_id: str, time_ms: int) -> Arrival:
        """Judges the next record: the first with its id, a duplicate, or late. Remembers the id of a first record."""
        if time_ms < self._clock_ms - self._window_ms:
            return Arrival.LATE
        self._clock_ms = max(self._clock_ms, time_ms)
        digest = hashlib.blake2b(record_id.encode(), digest_size=ID_BYTES).digest()
        first_ms = self._times.get(digest)
        if first_ms is not None and abs(time_ms - first_ms) <= self._window_ms:
            return Arrival.DUPLICATE
        self._times[digest] = time_ms
        return Arrival.FIRST

    def packed(self) -> PackedIds:
        """Returns the ids for the state store, without those that are too old."""
        horizon_ms = self._clock_ms - 2 * self._window_ms
        kept = {digest: time_ms for digest, time_ms in self._times.items() if time_ms >= horizon_ms}
        return PackedIds(self._clock_ms, b"".join(kept), array("q", kept.values()).tobytes())


def _unpacked(packed: PackedIds) -> dict[bytes, int]:
    times = array("q")
    times.frombytes(packed.times)
    assert len(packed.digests) == ID_BYTES * len(times), (len(packed.digests), len(times))
    starts = range(0, len(packed.digests), ID_BYTES)
    return {packed.digests[start : start + ID_BYTES]: time for start, time in zip(starts, times, strict=True)}
