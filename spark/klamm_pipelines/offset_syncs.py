"""Maps offsets of the source to offsets of the target, for the records of a mirrored partition. Pure.

A run is a sequence of records whose offsets grow by one on both sides. For each micro-batch, the mirror writes its runs
as a sync to a compacted topic, in the transaction of the records themselves. Fewer and fewer older syncs are kept:
SLOTS syncs for each power of two of batches. If a sync has too many runs, some of its runs are dropped.

A committed offset is the next record to read. Its translation never skips a record that was not read. Between two known
runs, the translation is the end of the first run, at worst some records too early.
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
    """A run of records whose offsets grow by one on both sides."""

    source_offset: int
    target_offset: int
    length: int


class MirroredRunBuilder:
    """Collects the runs of one partition, record by record."""

    def __init__(self) -> None:
        self._runs: list[MirroredRun] = []

    def add(self, source_offset: int, target_offset: int) -> None:
        """Adds the next record of the partition. Both offsets must be greater than those of the record before."""
        if self._runs:
            source, target, length = self._runs[-1]
            assert source_offset >= source + length, (source_offset, self._runs[-1])
            if (source_offset, target_offset) == (source + length, target + length):
                self._runs[-1] = MirroredRun(source, target, length + 1)
                return
        self._runs.append(MirroredRun(source_offset, target_offset, 1))
        if len(self._runs) > RUNS_MAX:
            # The last run may still grow.
            self._runs = [*self._runs[:-1:2], self._runs[-1]]

    @property
    def runs(self) -> tuple[MirroredRun, ...]:
        return tuple(self._runs)


def slot_of(batch_id: int) -> str:
    """Returns the slot of a batch's sync. The sync of a later batch with the same slot replaces it.

    A batch's level is the number of times that two divides the batch's number. Each level has SLOTS slots."""
    level = (batch_id & -batch_id).bit_length() - 1 if batch_id else 63
    return f"{level}.{(batch_id >> (level + 1)) % SLOTS}"


def translate(runs: Sequence[MirroredRun], offset: int) -> int | None:
    """Returns the target's offset at which a consumer continues that has read the source up to `offset`.

    `runs` are sorted by source offset. Returns None if `offset` is before the first known run, where any records may
    be."""
    index = bisect_right(runs, offset, key=lambda run: run.source_offset) - 1
    if index < 0:
        return None
    source, target, length = runs[index]
    return target + min(offset - source, length)


def encode_key(topic: str, partition: int, batch_id: int) -> bytes:
    return json.dumps([topic, partition, slot_of(batch_id)]).encode()


def encode_value(runs: Iterable[MirroredRun]) -> bytes:
    return json.dumps(list(runs)).encode()


def decode(key: bytes, value: bytes) -> tuple[str, int, list[MirroredRun]]:
    """Returns the topic and partition of the source, and the runs of one sync."""
    topic, partition, _ = json.loads(key)
    return topic, partition, [MirroredRun(*load) for load in json.loads(value)]
