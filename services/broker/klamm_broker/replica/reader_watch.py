"""The partitions of a consumer's incremental fetch session (KIP-227), of which a fetch reads only those that may have
changed.

A partition *rests* while its reader has everything: the last answer had no records and no error, its offsets were sent,
and nothing has changed since it was located. A fetch does not look at partitions that rest. All others are *active*. A
partition becomes active when its replica changes (`ReaderWatch.on_change`), when the client sends another position or
other options, when its topic has another name, and when the client may not read its topic. It rests again only in
`ReaderContext.select`. Active partitions are read in the order of their ranks. Partitions that returned records move to
the end, so that no partition starves.

Invariants: a partition that rests has `awaited`, with its state at the time when it was located last. The watch has the
partitions of all sessions that are not closed, by their names. Event loop only. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet

from klamm.model import TopicPartition
from klamm_broker.replica.delayed_fetch import AwaitedPartition, DelayedFetch
from klamm_broker.replica.fetch_reader import FetchCursor, PartitionAnswer, ReaderTerms

Topic = bytes | str
"""A topic as the client names it, by id or by name."""
PartitionKey = tuple[Topic, int]
_UNTOLD = -2
"""An offset that no partition has, so that the next answer contains the partition."""


class WatchedPartition:
    """A partition of a session, with the offsets that were last sent to its reader."""

    __slots__ = ("awaited", "changed_at", "cursor", "rank", "reader", "told_high_watermark", "told_log_start")

    def __init__(self, reader: WatchedReader, cursor: FetchCursor) -> None:
        self.reader = reader
        self.cursor = cursor
        self.rank = self.changed_at = 0
        self.awaited: AwaitedPartition | None = None
        self.told_high_watermark = self.told_log_start = _UNTOLD

    def has_changes(self, answer: PartitionAnswer) -> bool:
        """Returns True if the answer has changes for the reader, and remembers the answer as sent."""
        if answer.error_code:
            # When the error is over, the next answer must contain the partition.
            self.told_high_watermark = _UNTOLD
            return True
        told = (self.told_high_watermark, self.told_log_start)
        self.told_high_watermark, self.told_log_start = answer.high_watermark, answer.log_start_offset
        return (
            bool(answer.records_bytes)
            or told != (answer.high_watermark, answer.log_start_offset)
            or answer.diverging is not None
            or answer.preferred_read_replica >= 0
        )


class ReaderWatch:
    """Finds the partitions of sessions that a change of a replica affects."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, dict[WatchedPartition, None]] = {}

    def add(self, partition: WatchedPartition) -> None:
        self._partitions.setdefault(partition.cursor.topic_partition, {})[partition] = None

    def remove(self, partition: WatchedPartition) -> None:
        name = partition.cursor.topic_partition
        watched = self._partitions[name]
        del watched[partition]
        if not watched:
            del self._partitions[name]

    def on_change(self, name: TopicPartition) -> None:
        """Notifies the sessions that a replica's readable records, log start, epoch or role may have changed."""
        watched = self._partitions.get(name)
        if watched is not None:
            for partition in tuple(watched):
                partition.reader.on_change(partition)


class WatchedReader:
    """The partitions of one session. The owner calls `close` when the session has ended."""

    def __init__(self, watch: ReaderWatch) -> None:
        self._watch = watch
        self.partitions: dict[PartitionKey, WatchedPartition] = {}
        self.active: dict[WatchedPartition, None] = {}
        self.topics: dict[str, int] = {}
        """The number of partitions by topic name."""
        self.tick = 0
        """The number of changes of partitions."""
        self._last_rank = 0
        self._terms: ReaderTerms | None = None
        self._waits: dict[DelayedFetch, dict[WatchedPartition, AwaitedPartition]] = {}

    def __len__(self) -> int:
        return len(self.partitions)

    def take(self, key: PartitionKey, cursor: FetchCursor) -> bool:
        """Adds a partition, or changes its position. Returns True if it is new."""
        partition = self.partitions.get(key)
        if partition is not None:
            self.rename(partition, cursor.topic_partition)
            partition.cursor = cursor
            self.on_change(partition)
            return False
        partition = self.partitions[key] = WatchedPartition(self, cursor)
        self._put_last(partition)
        self._watch_as(partition, cursor.topic_partition)
        self.on_change(partition)
        return True

    def forget(self, key: PartitionKey) -> bool:
        """Removes a partition. Returns False if the session does not have it."""
        partition = self.partitions.pop(key, None)
        if partition is None:
            return False
        self._unwatch(partition)
        self.active.pop(partition, None)
        self.tick += 1
        return True

    def rename(self, partition: WatchedPartition, name: TopicPartition) -> None:
        """Sets the name of the partition, whose topic the client names by id."""
        if name != partition.cursor.topic_partition:
            self._unwatch(partition)
            self._watch_as(partition, name)
            self.on_change(partition)

    def _watch_as(self, partition: WatchedPartition, name: TopicPartition) -> None:
        partition.cursor.topic_partition = name
        self.topics[name.topic] = self.topics.get(name.topic, 0) + 1
        self._watch.add(partition)

    def _unwatch(self, partition: WatchedPartition) -> None:
        topic = partition.cursor.topic_partition.topic
        self._watch.remove(partition)
        self.topics[topic] -= 1
        if not self.topics[topic]:
            del self.topics[topic]

    def close(self) -> None:
        """Ends the session. A fetch that waits for it is answered."""
        for partition in self.partitions.values():
            self._watch.remove(partition)
        self.partitions, self.active = {}, {}
        waits, self._waits = self._waits, {}
        for wait in waits:
            wait.on_expiration()

    # Changes

    def on_change(self, partition: WatchedPartition) -> None:
        """Makes the partition active, and completes fetches that have waited for it."""
        self.tick += 1
        partition.changed_at = self.tick
        if partition not in self.active:
            self.active[partition] = None
            if partition.awaited is not None:
                for awaited in self._waits.values():
                    awaited.setdefault(partition, partition.awaited)
        for wait in tuple(self._waits):
            if wait.try_complete():
                del self._waits[wait]

    def prepare(self, terms: ReaderTerms, refused: AbstractSet[str]) -> None:
        """Makes the partitions active whose answers differ because of the options of the fetch or the caller's rights.
        `refused` are the topics that the caller may not read."""
        if terms != self._terms:
            self._terms = terms
            self._activate(self.partitions.values())
        elif refused:
            self._activate(
                partition for partition in self.partitions.values() if partition.cursor.topic_partition.topic in refused
            )

    def _activate(self, partitions: Iterable[WatchedPartition]) -> None:
        for partition in partitions:
            if partition not in self.active:
                self.on_change(partition)

    def move_back(self, partition: WatchedPartition) -> None:
        """Reads the partition after all others, because it has just returned records."""
        self._put_last(partition)
        self.tick += 1

    def _put_last(self, partition: WatchedPartition) -> None:
        self._last_rank += 1
        partition.rank = self._last_rank

    def rest(self, partition: WatchedPartition, answer: PartitionAnswer) -> None:
        """Ends the reading of a partition until it changes. `answer` is from its newest state."""
        assert answer.caught_up is not None, answer
        assert self._terms is not None, answer
        partition.awaited = AwaitedPartition(answer.caught_up, read_committed=self._terms.read_committed)
        del self.active[partition]
        self.tick += 1

    # Waiting

    def begin_wait(self, wait: DelayedFetch, awaited: dict[WatchedPartition, AwaitedPartition]) -> None:
        """Adds the partitions that change while the fetch waits to `awaited`."""
        self._waits[wait] = awaited

    def end_wait(self, wait: DelayedFetch) -> None:
        self._waits.pop(wait, None)

    def check_invariants(self) -> None:
        """Asserts the invariants, for tests."""
        counts: dict[str, int] = {}
        for partition in self.partitions.values():
            name = partition.cursor.topic_partition
            counts[name.topic] = counts.get(name.topic, 0) + 1
            assert partition in self._watch._partitions[name], name
            assert partition in self.active or partition.awaited is not None, name
        assert counts == self.topics, (counts, self.topics)
        assert len({partition.rank for partition in self.partitions.values()}) == len(self.partitions)


class ReaderContext:
    """One fetch of a session."""

    def __init__(self, reader: WatchedReader) -> None:
        self._reader = reader
        self._located: list[WatchedPartition] = []
        self._cursors: list[FetchCursor] = []
        self._located_at = -1

    @property
    def topics(self) -> Collection[str]:
        """The topics of all partitions of the session."""
        return self._reader.topics.keys()

    @property
    def active_count(self) -> int:
        """The number of partitions that may have changed."""
        return len(self._reader.active)

    def cursors(self, terms: ReaderTerms, refused: AbstractSet[str] = frozenset()) -> Sequence[FetchCursor]:
        """Returns the positions of the active partitions in the order in which they must be read. The caller reads all
        of them before it calls `select`.

        `refused` are the topics that the caller may not read."""
        reader = self._reader
        reader.prepare(terms, refused)
        if self._located_at != reader.tick:
            self._located_at = reader.tick
            self._located = sorted(reader.active, key=_rank)
            self._cursors = [partition.cursor for partition in self._located]
        return self._cursors

    def begin_wait(
        self, located: Sequence[AwaitedPartition], missing_bytes: int, on_done: Callable[[], None]
    ) -> DelayedFetch:
        """Returns the fetch that waits. `located` are the states of the partitions of the last `cursors`."""
        awaited = dict(zip(self._located, located, strict=True))
        for partition in self._reader.active:
            if partition not in awaited and partition.awaited is not None:
                awaited[partition] = partition.awaited  # it has changed since the others were located
        wait = DelayedFetch(awaited.values(), missing_bytes, on_done)
        self._reader.begin_wait(wait, awaited)
        return wait

    def end_wait(self, wait: DelayedFetch) -> None:
        """Ends a wait that is completed or over."""
        self._reader.end_wait(wait)

    def select(self, answers: Sequence[PartitionAnswer]) -> list[PartitionAnswer]:
        """Returns those of the answers that must be sent. `answers` are those to the last `cursors`."""
        reader = self._reader
        selected, with_records = [], []
        for partition, answer in zip(self._located, answers, strict=True):
            if partition.has_changes(answer):
                selected.append(answer)
            if partition not in reader.active:
                continue
            if answer.records_bytes:
                with_records.append(partition)
            elif answer.caught_up is not None and partition.changed_at <= self._located_at:
                reader.rest(partition, answer)
        for partition in with_records:
            reader.move_back(partition)
        return selected


def _rank(partition: WatchedPartition) -> int:
    return partition.rank
