"""Raw batches that were fetched and not returned by a poll yet, by partition and bounded in bytes.

The fetcher asks the buffer what to fetch next and adds the answers. The consumer takes a partition's fetch out, reads
records from it in one or more polls, and then returns its bytes to the buffer. While one fetch of a partition is read,
one more may wait, so that fetching and reading overlap.

A fetch belongs to the position epoch that it was sent for. If a seek or a rebalance has moved the position since, the
fetch is dropped wherever it is. A fetch is also dropped if another one has already continued from its offset: while
leaders change, the old and the new leader may be asked for the same records.

Invariant: `buffered_bytes` is the size of every fetch put in and neither dropped nor released.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from klamm.consumer.subscription import SubscriptionState
from klamm.model import TopicPartition
from klamm.records import BatchHeader, read_header


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedData:
    """Whole batches of one partition, in order."""

    tp: TopicPartition
    position_epoch: int
    fetch_offset: int
    """The offset of the first requested record. The first batch may begin before it."""
    batches: memoryview
    next_offset: int
    """The offset after these batches."""
    leader_epoch: int
    """The leader epoch of the last of these batches."""
    aborted_transactions: tuple[tuple[int, int], ...] = ()
    """(producer id, first offset) of the aborted transactions among these batches."""

    def was_read(self, header: BatchHeader, start_offset: int) -> bool:
        """Returns whether another reader has read the whole batch, if it has read up to `start_offset`."""
        return self.fetch_offset < header.next_offset <= start_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPosition:
    """The offset and leader epoch of a partition's next fetch."""

    tp: TopicPartition
    position_epoch: int
    offset: int
    last_fetched_epoch: int
    """The leader epoch of the batch before `offset`, or -1 if it is not known."""


class FetchBuffer:
    """The fetched data of one consumer."""

    def __init__(self, subscription: SubscriptionState, max_bytes: int) -> None:
        self._subscription = subscription
        self._max_bytes = max_bytes
        self._waiting: dict[TopicPartition, FetchedData] = {}
        self._ends: dict[TopicPartition, FetchPosition] = {}
        """The end of the last fetch of each partition, with the position epoch of that fetch."""
        self.buffered_bytes = 0

    @property
    def full(self) -> bool:
        return self.buffered_bytes >= self._max_bytes

    def wanted(self) -> list[FetchPosition]:
        """Returns the positions of the partitions to fetch now, the one fetched longest ago first. Returns nothing
        while the buffer is full."""
        self._drop_stale()
        if self.full:
            return []
        fetchable = self._subscription.partitions_where(lambda state: state.fetchable)
        order = {tp: index for index, tp in enumerate(self._ends)}
        fetchable.sort(key=lambda tp: order.get(tp, -1))
        positions = [self._position_of(tp) for tp in fetchable if tp not in self._waiting]
        return [position for position in positions if not self._is_at_end(position)]

    def saturated(self) -> bool:
        """Returns whether a fetchable partition may be missing in `wanted` only until its buffered records are read."""
        return self.full or self.has_ready()

    def put(self, data: FetchedData) -> bool:
        """Adds a fetch to the buffer. Returns False, and drops the fetch, if it is no longer needed."""
        if not self._current(data.tp, data.position_epoch):
            return False
        if data.fetch_offset != self._position_of(data.tp).offset:
            return False  # The leader changed, and both leaders were asked for the same records.
        assert data.tp not in self._waiting, f"a second fetch of {data.tp} waits"
        self._ends.pop(data.tp, None)
        self._ends[data.tp] = FetchPosition(
            tp=data.tp,
            position_epoch=data.position_epoch,
            offset=data.next_offset,
            last_fetched_epoch=data.leader_epoch,
        )
        self._waiting[data.tp] = data
        self.buffered_bytes += len(data.batches)
        return True

    def has_ready(self) -> bool:
        """Returns whether `take` would return any fetch."""
        return any(self._ready(data) for data in self._waiting.values())

    def take(self) -> list[FetchedData]:
        """Removes and returns every fetch that may be read now. Fetches of paused partitions stay."""
        self._drop_stale()
        ready = [data for data in self._waiting.values() if self._ready(data)]
        for data in ready:
            del self._waiting[data.tp]
        return ready

    def release(self, finished: Iterable[FetchedData]) -> None:
        """Returns the bytes of fetches that were taken out. They are read, or will not be read."""
        for data in finished:
            self.buffered_bytes -= len(data.batches)
        assert self.buffered_bytes >= 0, f"{self.buffered_bytes} bytes are buffered"

    def _is_at_end(self, position: FetchPosition) -> bool:
        end_offset = self._subscription.require(position.tp).end_offset
        return end_offset is not None and position.offset >= end_offset

    def _drop_stale(self) -> None:
        stale = [data for data in self._waiting.values() if not self._current(data.tp, data.position_epoch)]
        for data in stale:
            del self._waiting[data.tp]
        self.release(stale)
        for tp in [tp for tp in self._ends if self._subscription.get(tp) is None]:
            del self._ends[tp]

    def _current(self, tp: TopicPartition, position_epoch: int) -> bool:
        state = self._subscription.get(tp)
        return state is not None and state.position_epoch == position_epoch

    def _ready(self, data: FetchedData) -> bool:
        state = self._subscription.get(data.tp)
        return state is not None and state.fetchable and state.position_epoch == data.position_epoch

    def _position_of(self, tp: TopicPartition) -> FetchPosition:
        state = self._subscription.require(tp)
        end = self._ends.get(tp)
        if end is not None and end.position_epoch == state.position_epoch:
            return end
        return FetchPosition(
            tp=tp,
            position_epoch=state.position_epoch,
            offset=state.position,
            last_fetched_epoch=state.leader_epoch,
        )


def last_header(batches: memoryview) -> BatchHeader:
    """Returns the header of the last batch. `batches` has at least one whole batch. Reads headers only.

    Raises a CorruptBatchError."""
    position = 0
    while True:
        header = read_header(batches, position)
        position += header.size_bytes
        if position >= len(batches):
            return header
