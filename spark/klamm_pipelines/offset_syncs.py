"""Where the records of a mirrored partition are: from offsets of the source to offsets of the target. Pure.

A run is of records whose offsets grow by one on both sides. Of each micro-batch the mirror leaves its runs, a sync,
in a compacted topic, in the transaction of the records themselves. Syncs are thinned out towards the past (of each
power of two of batches SLOTS are kept), and so are the runs of one that has too many.

A committed offset is the next record to read. Its translation is never behind a record that was not read: of what
lies between two known runs it is the end of the first, at worst some records too early.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

SLOTS: Final = 64
RUNS_MAX: Final = 1_000
"""The most runs in one sync: some 30 kB."""


class MirroredRun(NamedTuple):
    """Records next to each other on both sides."""

    source_offset: int
    target_offset: int
    length: int


class MirroredRunBuilder:
    """Collects where records went."""

    def __init__(self) -> None:
        self._runs: list[MirroredRun] = []

    def add(self, source_offset: int, target_offset: int) -> None:
        """The next record of the partition; both offsets grow."""
        if self._runs:
            source, target, length = self._runs[-1]
            assert source_offset >= source + length, (source_offset, self._runs[-1])
            if (source_offset, target_offset) == (source + length, target + length):
                self._runs[-1] = MirroredRun(source, target, length + 1)
                return
        self._runs.append(MirroredRun(source_offset, target_offset, 1))
        if len(self._runs) > RUNS_MAX:
            # The last one grows on.
            self._runs = [*self._runs[:-1:2], self._runs[-1]]

    @property
    def runs(self) -> tuple[MirroredRun, ...]:
        return tuple(self._runs)


def slot_of(batch_id: int) -> str:
    """The place of a batch's sync: a later batch that has the same replaces it.

    A batch is of the level of how often two divides its number, and each level has SLOTS places."""
    level = (batch_id & -batch_id).bit_length() - 1 if batch_id else 63
    return f"{level}.{(batch_id >> (level + 1)) % SLOTS}"


def translate(runs: Sequence[MirroredRun], offset: int) -> int | None:
    """The target's offset to go on from, for a consumer that has read up to `offset` of the source.

    runs: by source offset. None: the first known is behind it, and anything may lie before."""
    index = bisect_right(runs, offset, key=lambda each: each.source_offset) - 1
    if index < 0:
        return None
    source, target, length = runs[index]
    return target + min(offset - source, length)


def encode_key(topic: str, partition: int, batch_id: int) -> bytes:
    return json.dumps([topic, partition, slot_of(batch_id)]).encode()


def encode_value(runs: Iterable[MirroredRun]) -> bytes:
    return json.dumps(list(runs)).encode()


def decode(key: bytes, value: bytes) -> tuple[str, int, list[MirroredRun]]:
    """Topic and partition of the source, and the runs of one sync."""
    topic, partition, _ = json.loads(key)
    return topic, partition, [MirroredRun(*each) for each in json.loads(value)]
