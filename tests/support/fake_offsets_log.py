"""One partition of `__consumer_offsets` in memory, which behaves as a broker does towards its writer.

It has idempotence and fencing by producer epoch, lost answers, and errors. It replaces `BrokerChannels`.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from klamm.errors import BrokerError, ErrorCode
from klamm.records import BatchHeader, assign_offset, decode_batch, read_header
from klamm.wire.framed import decode_framed, encode_framed
from klamm.wire.v1.broker_pb2 import (
    FetchedPartition,
    FetchHeader,
    FetchRequest,
    ProducedPartition,
    ProduceHeader,
    ProducePartition,
    ProduceResponse,
)

LOST_ANSWER = "the batch is appended, the answer is lost"
NO_ANSWER = "the broker cannot be reached"
DELAYED = "the request is lost on its way, until `deliver_delayed`"


class FakeOffsetsLog:
    """A partition in memory. `script` has the outcomes of the next produce requests: an ErrorCode, LOST_ANSWER,
    NO_ANSWER or DELAYED. If `script` is empty, a request succeeds."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.script: deque[ErrorCode | str] = deque()
        self.fetch_script: deque[ErrorCode | str] = deque()
        """The outcomes of the next fetch requests: an ErrorCode or NO_ANSWER."""
        self.end_offset = 0
        self.log_start_offset = 0
        self.batch_bytes_max = 1_000_000
        self.produce_count = 0
        self.transaction_epochs: dict[int, int] = {}
        """The producer epoch of each transactional producer, by producer id."""
        self._delayed: list[bytes] = []
        self._writers: dict[int, tuple[int, int, ProducedPartition]] = {}
        """The epoch, the next sequence number and the last answer of each writer, by producer id."""

    def leader_of(self, topic: str, partition: int) -> Any:
        return self

    def leader_epoch_of(self, topic: str, partition: int) -> int:
        return 0

    async def close(self) -> None:
        pass

    def records(self) -> list[Any]:
        """Returns all records that were ever appended, in order."""
        return [record for batch in self.batches for record in decode_batch(batch)]

    def deliver_delayed(self) -> list[int]:
        """Delivers delayed requests, whose senders no longer wait. Returns the error codes of the answers."""
        delayed, self._delayed = self._delayed, []
        found = [decode_framed(message, ProduceHeader) for message in delayed]
        return [self._append(bytearray(records), header.partitions[0]).error_code for header, records in found]

    async def produce(self, message: bytes, timeout_ms: int) -> ProduceResponse:
        self.produce_count += 1
        fate = self.script.popleft() if self.script else ErrorCode.NONE
        if fate == DELAYED:
            self._delayed.append(message)
        if fate in (NO_ANSWER, DELAYED):
            raise unavailable()
        if isinstance(fate, ErrorCode) and fate:
            return ProduceResponse(partitions=[ProducedPartition(error_code=fate, base_offset=-1)])
        header, records = decode_framed(message, ProduceHeader)
        assert header.acks == -1
        answer = self._append(bytearray(records), header.partitions[0])
        if fate == LOST_ANSWER:
            raise unavailable()
        return ProduceResponse(partitions=[answer])

    def _append(self, batch: bytearray, asked: ProducePartition) -> ProducedPartition:
        header = read_header(batch)
        if header.is_transactional:
            return self._append_of_transaction(batch, header, asked)
        if len(batch) > self.batch_bytes_max:
            return ProducedPartition(error_code=ErrorCode.MESSAGE_TOO_LARGE, base_offset=-1)
        epoch, next_sequence, last = self._writers.get(header.producer_id, (-1, 0, ProducedPartition()))
        if header.producer_epoch < epoch:
            return ProducedPartition(error_code=ErrorCode.INVALID_PRODUCER_EPOCH, base_offset=-1)
        if header.producer_epoch > epoch:
            next_sequence = 0
        elif header.base_sequence + header.record_count == next_sequence:
            return last
        if header.base_sequence != next_sequence:
            return ProducedPartition(error_code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, base_offset=-1)
        answer = ProducedPartition(base_offset=self.end_offset, log_start_offset=self.log_start_offset)
        self._writers[header.producer_id] = (
            header.producer_epoch,
            next_sequence + header.record_count,
            answer,
        )
        self.store(batch, header)
        return answer

    def _append_of_transaction(
        self, batch: bytearray, header: BatchHeader, asked: ProducePartition
    ) -> ProducedPartition:
        assert asked.HasField("writer")
        writer_epoch, _, _ = self._writers[asked.writer.producer_id]
        epoch = self.transaction_epochs.setdefault(header.producer_id, header.producer_epoch)
        if asked.writer.producer_epoch < writer_epoch or header.producer_epoch < epoch:
            return ProducedPartition(error_code=ErrorCode.INVALID_PRODUCER_EPOCH, base_offset=-1)
        base_offset = self.end_offset
        if asked.writer.base_offset != base_offset:
            return self._appended_before(header, asked.writer.base_offset)
        self.transaction_epochs[header.producer_id] = header.producer_epoch
        self.store(batch, header)
        return ProducedPartition(base_offset=base_offset, log_start_offset=self.log_start_offset)

    def _appended_before(self, header: BatchHeader, base_offset: int) -> ProducedPartition:
        for batch in self.batches:
            there = read_header(batch)
            if there.base_offset == base_offset and there.crc == header.crc:
                return ProducedPartition(base_offset=base_offset, log_start_offset=self.log_start_offset)
        return ProducedPartition(error_code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, base_offset=-1)

    def store(self, batch: bytearray, header: BatchHeader) -> None:
        """Appends a batch from any producer."""
        assign_offset(batch, base_offset=self.end_offset, partition_leader_epoch=0)
        self.batches.append(bytes(batch))
        self.end_offset += header.record_count

    async def fetch(self, request: FetchRequest, timeout_ms: int) -> bytes:
        fate = self.fetch_script.popleft() if self.fetch_script else ErrorCode.NONE
        if fate == NO_ANSWER:
            raise unavailable()
        if isinstance(fate, ErrorCode) and fate:
            return encode_framed(FetchHeader(partitions=[FetchedPartition(error_code=fate)]), [])
        (wanted,) = request.partitions
        if not self.log_start_offset <= wanted.fetch_offset <= self.end_offset:
            part = FetchedPartition(error_code=ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=self.log_start_offset)
            return encode_framed(FetchHeader(partitions=[part]), [])
        chosen: list[bytes] = []
        for batch in self.batches:
            if read_header(batch).next_offset <= wanted.fetch_offset:
                continue
            if chosen and sum(map(len, chosen)) + len(batch) > wanted.max_bytes:
                break
            chosen.append(batch)
        part = FetchedPartition(high_watermark=self.end_offset, records_bytes=sum(map(len, chosen)))
        return encode_framed(FetchHeader(partitions=[part]), chosen)


def unavailable() -> BrokerError:
    return ErrorCode.NETWORK_EXCEPTION.exception("gone")
