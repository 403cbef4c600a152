"""The fetched data that a consumer is reading now. Polls share it among partitions.

The polling thread owns it. In the synchronous Consumer, that is the caller's thread, so that decompression and decoding
run there and not on the event loop. Each poll continues with the partition at the head of the queue. A partition that
filled a poll moves to the end of the queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from klamm.consumer.config import Records
from klamm.consumer.fetch.fetch_buffer import FetchedData
from klamm.consumer.fetch.fetched_data_reader import FetchedDataReader, ReaderConfig
from klamm.consumer.partition_state import PartitionState
from klamm.consumer.record import ConsumerRecord
from klamm.consumer.subscription import SubscriptionState
from klamm.errors import KlammError
from klamm.model import NO_LEADER_EPOCH


class RecordDrain:
    """Reads records and moves the positions of their partitions. It changes nothing else of the subscription."""

    def __init__(self, subscription: SubscriptionState, config: ReaderConfig) -> None:
        self._subscription = subscription
        self._config = config
        self._readers: deque[FetchedDataReader] = deque()
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
            reader = self._readers.popleft()
            state = self._subscription.get(reader.data.tp)
            if state is None or self._is_overtaken(reader):
                self._finished.append(reader.data)
            elif state.paused:
                self._readers.append(reader)
            else:
                left -= self._read_one(reader, state, left, records)
        self.records_total += max_records - left
        return records

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
        if reader.leader_epoch != NO_LEADER_EPOCH:
            state.leader_epoch = reader.leader_epoch
        state.position = reader.next_offset
        if reader.exhausted:
            self._finished.append(reader.data)
            self.bytes_total += len(reader.data.batches)
        else:
            self._readers.append(reader)
        return len(taken)

    def _drop_overtaken(self) -> None:
        """Drops readers whose partitions were sought or revoked. A read that stopped early may have left them in the
        queue."""
        self._finished += [reader.data for reader in self._readers if self._is_overtaken(reader)]
        self._readers = deque(reader for reader in self._readers if not self._is_overtaken(reader))

    def _is_overtaken(self, reader: FetchedDataReader) -> bool:
        """Returns whether a seek or a rebalance has made the reader's records obsolete."""
        state = self._subscription.get(reader.data.tp)
        return state is None or state.position_epoch != reader.data.position_epoch

    def _is_current(self, reader: FetchedDataReader) -> bool:
        state = self._subscription.get(reader.data.tp)
        return state is not None and state.fetchable and state.position_epoch == reader.data.position_epoch
