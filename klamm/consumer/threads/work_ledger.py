"""Keeps track of polled records: which ones wait, are being processed, are done, and may be committed.

At most one worker processes a partition at a time, so its records are processed in order. All records before some
offset are then done, and that offset is committed. Partitions take turns.

Pure. The owner guards it with a lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from klamm.consumer.record import ConsumerRecord
from klamm.model import TopicPartition
from klamm.offsets import OffsetAndMetadata


class PartitionWork:
    """The records of one partition during one assignment. If the partition is assigned again, it gets a new object."""

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.waiting: deque[ConsumerRecord] = deque()
        self.is_busy = False
        """True while a worker processes the partition."""
        self.is_given_up = False
        """The partition is being revoked, so its worker stops after the record that it is processing."""
        self.done: OffsetAndMetadata | None = None
        """The offset that may be committed, or None if no record was processed yet."""
        self.committed: OffsetAndMetadata | None = None


class WorkLedger:
    """The work on all partitions of one consumer."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, PartitionWork] = {}
        self._ready: deque[PartitionWork] = deque()
        """The partitions that have records and no worker, each once, in the order of their turns."""

    def add(self, tp: TopicPartition, records: Sequence[ConsumerRecord]) -> None:
        """Adds the records of a poll. They follow the records that were added before."""
        work = self._partitions.get(tp)
        if work is None:
            work = self._partitions[tp] = PartitionWork(tp)
        is_new = not work.waiting and not work.is_busy
        work.waiting.extend(records)
        if is_new and records:
            self._ready.append(work)

    def take(self) -> PartitionWork | None:
        """Returns a partition for a worker, or None if no partition has work. The worker returns it with `release`."""
        while self._ready:
            work = self._ready.popleft()
            if not work.is_given_up:
                work.is_busy = True
                return work
        return None

    def next_record(self, work: PartitionWork) -> ConsumerRecord | None:
        """Returns the next record for the partition's worker, or None if the worker has to release the partition."""
        return None if work.is_given_up or not work.waiting else work.waiting.popleft()

    def note_done(self, work: PartitionWork, record: ConsumerRecord) -> None:
        """Notes that the record, and all records before it, are processed."""
        work.done = OffsetAndMetadata(record.offset + 1, leader_epoch=record.leader_epoch)

    def release(self, work: PartitionWork) -> None:
        """Returns a partition from its worker. If records are left, the partition waits for its next turn."""
        work.is_busy = False
        if work.waiting and not work.is_given_up:
            self._ready.append(work)

    def waiting_count(self, tp: TopicPartition) -> int:
        """Returns the number of waiting records of the partition."""
        work = self._partitions.get(tp)
        return 0 if work is None else len(work.waiting)

    # Commits

    def to_commit(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the offsets of processed records that are not committed yet, of `partitions` or of all."""
        chosen = self._partitions if partitions is None else self._partitions.keys() & set(partitions)
        works = [self._partitions[tp] for tp in sorted(chosen)]
        return {work.tp: work.done for work in works if work.done is not None and work.done != work.committed}

    def note_committed(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Notes offsets that were committed. Ignores partitions that were revoked since."""
        for tp, offset in offsets.items():
            if tp in self._partitions:
                self._partitions[tp].committed = offset

    # Partitions that go

    def give_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops the waiting records of partitions that are being revoked. Workers begin no further record of them."""
        for tp in partitions:
            if tp in self._partitions:
                self._partitions[tp].is_given_up = True
                self._partitions[tp].waiting.clear()

    def busy(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Returns those of `partitions` that a worker is still processing."""
        return [tp for tp in partitions if tp in self._partitions and self._partitions[tp].is_busy]

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Removes partitions that were revoked, after `give_up`."""
        for tp in partitions:
            self._partitions.pop(tp, None)

    def assigned(self) -> list[TopicPartition]:
        """Returns all partitions of which records were added."""
        return list(self._partitions)
