"""The fetched data that a consumer is reading now. Polls share it among partitions. Polls for records and for columns
may alternate. A partition's reader is then replaced by one of the other kind.

The polling thread owns it. In the synchronous Consumer, that is the caller's thread, so that decompression and decoding
run there and not on the event loop. Each poll continues with the partition at the head of the queue. A partition that
filled a poll moves to the end of the queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from klamm.consumer.config import Records
from klamm.consumer.fetch.column_request import ColumnRequest
from klamm.consumer.fetch.fetch_buffer import FetchedData
from klamm.consumer.fetch.fetched_data_reader import FetchedDataReader, ReaderConfig
from klamm.consumer.partition_state import PartitionState
from klamm.consumer.record import ConsumerRecord
from klamm.consumer.subscription import SubscriptionState
from klamm.errors import KlammError
from klamm.model import NO_LEADER_EPOCH, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from klamm.consumer.fetch.fetched_columns_reader import FetchedColumnsReader


class PolledColumns(NamedTuple):
    """The rows of one partition that a poll returns, and the position before them."""

    tp: TopicPartition
    position: int
    rows: pa.RecordBatch


class RecordDrain:
    """Reads records and moves the positions of their partitions. It changes nothing else of the subscription."""

    def __init__(self, subscription: SubscriptionState, config: ReaderConfig) -> None:
        self._subscription = subscription
        self._config = config
        self._readers: deque[FetchedDataReader | FetchedColumnsReader] = deque()
        self._finished: list[FetchedData] = []
        self.records_total = 0
        self.bytes_total = 0

    def load(self, fetched: Iterable[FetchedData]) -> None:
        """Adds fetches to read, at most one of each partition at a time."""
        self._drop_overtaken()
        for data in fetched:
            assert all(reader.data.tp != data.tp for reader in self._readers), f"{data.tp} is being read"
            self._readers.append(FetchedDataReader(data, self._config))

    def reading(self) -> bool:
        """Returns whether a read may return records without loading more."""
        return any(self._is_current(reader) for reader in self._readers)

    def finished(self) -> list[FetchedData]:
        """Removes and returns the fetches that were read to the end, or made obsolete by a seek or a rebalance, since
        the last call."""
        finished, self._finished = self._finished, []
        return finished

    def read(self, max_records: int) -> Records:
        """Returns up to `max_records` records of those that were fetched.

        Raises the errors of FetchedDataReader, after the records before them were returned."""
        records: Records = {}
        left = max_records
        for _ in range(len(self._readers)):
            if not left:
                break
            readable = self._next_readable()
            if readable is not None:
                reader, state = readable
                if not isinstance(reader, FetchedDataReader):
                    reader = FetchedDataReader(reader.data, self._config, reader.next_offset)
                left -= self._read_one(reader, state, left, records)
        self.records_total += max_records - left
        return records

    def read_columns(self, request: ColumnRequest) -> PolledColumns | None:
        """Returns rows of one partition of those that were fetched, or None if there are none.

        Raises the errors of FetchedColumnsReader, after the rows before them were returned."""
        for _ in range(len(self._readers)):
            readable = self._next_readable()
            if readable is not None:
                rows = self._read_columns_of(
                    self._columns_reader(readable[0], request), readable[1], request.max_records
                )
                if rows is not None:
                    return rows
        return None

    def _next_readable(self) -> tuple[FetchedDataReader | FetchedColumnsReader, PartitionState] | None:
        """Removes the reader at the head of the queue. Returns it with its partition's state, or None if it cannot be
        read now."""
        reader = self._readers.popleft()
        state = self._subscription.get(reader.data.tp)
        if state is None or self._is_overtaken(reader):
            self._finished.append(reader.data)
            return None
        if state.paused:
            self._readers.append(reader)
            return None
        return reader, state

    def _columns_reader(
        self, reader: FetchedDataReader | FetchedColumnsReader, request: ColumnRequest
    ) -> FetchedColumnsReader:
        from klamm.consumer.fetch.fetched_columns_reader import FetchedColumnsReader  # It needs pyarrow.

        if isinstance(reader, FetchedColumnsReader) and reader.fits(request):
            return reader
        return FetchedColumnsReader(reader.data, self._config, request, reader.next_offset)

    def _read_columns_of(
        self, reader: FetchedColumnsReader, state: PartitionState, max_records: int
    ) -> PolledColumns | None:
        position = state.position
        try:
            rows = reader.read(max_records)
        except KlammError:
            self._readers.append(reader)
            raise
        self._moved(reader, state)
        if rows is None:
            return None
        self.records_total += rows.num_rows
        return PolledColumns(reader.data.tp, position, rows)

    def _read_one(self, reader: FetchedDataReader, state: PartitionState, left: int, records: Records) -> int:
        taken: list[ConsumerRecord] = []
        try:
            while len(taken) < left and not reader.exhausted:
                # Usually one read is enough. Extending an empty list would copy its result.
                more = reader.read(left - len(taken))
                taken = taken + more if taken else more
        except KlammError:
            if not taken and not records:
                self._readers.append(reader)
                raise
        if taken:
            records[reader.data.tp] = taken
        self._moved(reader, state)
        return len(taken)

    def _moved(self, reader: FetchedDataReader | FetchedColumnsReader, state: PartitionState) -> None:
        """Moves the position to the end of what was read, and puts the reader back if it has more."""
        if reader.leader_epoch != NO_LEADER_EPOCH:
            state.leader_epoch = reader.leader_epoch
        state.position = reader.next_offset
        if reader.exhausted:
            self._finished.append(reader.data)
            self.bytes_total += len(reader.data.batches)
        else:
            self._readers.append(reader)

    def _drop_overtaken(self) -> None:
        """Drops readers whose partitions were sought or revoked. A read that stopped early may have left them in the
        queue."""
        self._finished += [reader.data for reader in self._readers if self._is_overtaken(reader)]
        self._readers = deque(reader for reader in self._readers if not self._is_overtaken(reader))

    def _is_overtaken(self, reader: FetchedDataReader | FetchedColumnsReader) -> bool:
        """Returns whether a seek or a rebalance has made the reader's records obsolete."""
        state = self._subscription.get(reader.data.tp)
        return state is None or state.position_epoch != reader.data.position_epoch

    def _is_current(self, reader: FetchedDataReader | FetchedColumnsReader) -> bool:
        state = self._subscription.get(reader.data.tp)
        return state is not None and state.fetchable and state.position_epoch == reader.data.position_epoch
