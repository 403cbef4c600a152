"""Which polled records wait, are being processed, and are done: the order of each partition, and what may be committed.

A partition is with at most one worker at a time, so its records are processed in order, and what is done of it is
everything before some offset: that offset is what is committed. Partitions take turns.

Pure. A lock of the owner's guards it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from klamm.consumer.record import ConsumerRecord
from klamm.model import TopicPartition
from klamm.offsets import OffsetAndMetadata


class PartitionWork:
    """The records of one partition for as long as it is assigned: one that comes back is another."""

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.waiting: deque[ConsumerRecord] = deque()
        self.is_busy = False
        """A worker has it."""
        self.is_given_up = False
        """It is about to be somebody else's: its worker stops behind the record it is at."""
        self.done: OffsetAndMetadata | None = None
        """What may be committed; None: nothing was processed yet."""
        self.committed: OffsetAndMetadata | None = None


class WorkLedger:
    """The work on all partitions of one consumer."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, PartitionWork] = {}
        self._ready: deque[PartitionWork] = deque()
        """The partitions that have records and no worker, each once, in the order of their turns."""

    def add(self, tp: TopicPartition, records: Sequence[ConsumerRecord]) -> None:
        """Records of a poll, which follow those before."""
        work = self._partitions.get(tp)
        if work is None:
            work = self._partitions[tp] = PartitionWork(tp)
        is_new = not work.waiting and not work.is_busy
        work.waiting.extend(records)
        if is_new and records:
            self._ready.append(work)

    def take(self) -> PartitionWork | None:
        """A partition for a worker, who brings it back with `release`; None: there is nothing to do."""
        while self._ready:
            work = self._ready.popleft()
            if not work.is_given_up:
                work.is_busy = True
                return work
        return None

    def next_record(self, work: PartitionWork) -> ConsumerRecord | None:
        """What its worker processes next; None: nothing, the worker brings it back."""
        return None if work.is_given_up or not work.waiting else work.waiting.popleft()

    def note_done(self, work: PartitionWork, record: ConsumerRecord) -> None:
        """The record, and all before it, are processed."""
        work.done = OffsetAndMetadata(record.offset + 1, leader_epoch=record.leader_epoch)

    def release(self, work: PartitionWork) -> None:
        """The worker of this partition turns to another one."""
        work.is_busy = False
        if work.waiting and not work.is_given_up:
            self._ready.append(work)

    def waiting_count(self, tp: TopicPartition) -> int:
        """Records that wait."""
        work = self._partitions.get(tp)
        return 0 if work is None else len(work.waiting)

    # Commits

    def to_commit(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        """What is done and not committed, of these or all."""
        chosen = self._partitions if partitions is None else self._partitions.keys() & set(partitions)
        works = [self._partitions[tp] for tp in sorted(chosen)]
        return {work.tp: work.done for work in works if work.done is not None and work.done != work.committed}

    def note_committed(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """These are stored. Those of partitions that are gone say nothing."""
        for tp, offset in offsets.items():
            if tp in self._partitions:
                self._partitions[tp].committed = offset

    # Partitions that go

    def give_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Nothing more of these is begun."""
        for tp in partitions:
            if tp in self._partitions:
                self._partitions[tp].is_given_up = True
                self._partitions[tp].waiting.clear()

    def busy(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The partitions that a worker still has."""
        return [tp for tp in partitions if tp in self._partitions and self._partitions[tp].is_busy]

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """They are somebody else's, after `give_up`."""
        for tp in partitions:
            self._partitions.pop(tp, None)

    def assigned(self) -> list[TopicPartition]:
        """All of which there was a record."""
        return list(self._partitions)
