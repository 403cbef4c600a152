"""Which ids were seen, by event time. Pure.

Two records of one id not more than a window apart are one record and its duplicate. A record more than a window
behind the latest time seen is late: whether it is a duplicate is not known any more. So an id need be remembered for
two windows behind that time: one that a record in time may be a duplicate of is at most one window older than the
record.

Packed, an id takes ID_BYTES of digest and 8 bytes of time, each in an array of its own.
"""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass
from enum import Enum
from typing import Final

ID_BYTES: Final = 16
"""An id is a 128-bit digest: two of 10^15 ids are taken for one with a probability of one to half a billion."""
_NEVER: Final = -(2**62)


class Arrival(Enum):
    """What a record is."""

    FIRST = "first"
    DUPLICATE = "duplicate"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class PackedIds:
    """Ids as a state store keeps them."""

    clock_ms: int
    """The latest time seen."""
    digests: bytes
    times: bytes


class SeenIds:
    """The ids of one share of the stream. Invariant: none is older than two windows before the clock."""

    def __init__(self, window_ms: int, packed: PackedIds | None = None) -> None:
        assert window_ms >= 0, window_ms
        self._window_ms = window_ms
        self._clock_ms = _NEVER if packed is None else packed.clock_ms
        self._times: dict[bytes, int] = {} if packed is None else _unpacked(packed)

    def __len__(self) -> int:
        return len(self._times)

    def judge(self, record_id: str, time_ms: int) -> Arrival:
        """What the record is that comes next."""
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
