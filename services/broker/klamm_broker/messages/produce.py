"""Reads a Produce request and writes its answer, in the messages of `proto/klamm/v1/broker.proto`."""

from __future__ import annotations

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import TopicPartition
from klamm.wire.framed import decode_framed, split_records
from klamm.wire.v1.broker_pb2 import ProducedPartition, ProduceHeader, ProducePartition
from klamm_broker.handlers.parkers import ClientHost
from klamm_broker.handlers.produce import PartitionRecords, Produce, Produced
from klamm_broker.log.partition.partition_log import ShardWriter
from klamm_server.rpc.absent_fields import given
from klamm_server.rpc.item_limits import check_items

_InvalidRequestError = EXCEPTIONS[ErrorCode.INVALID_REQUEST]


def decode(message: bytes | memoryview, client_host: ClientHost, *, timeout_ms: int) -> tuple[Produce, str]:
    """Returns the request, and its client's id. The records stay views of `message`. `timeout_ms` is the time-out of a
    request that names none.

    Raises InvalidRequestError if the bytes are not a produce request, and as `check_items`."""
    header, records = decode_framed(message, ProduceHeader)
    check_items(header)
    named = {(partition.topic, partition.partition) for partition in header.partitions}
    if len(named) != len(header.partitions):
        raise _InvalidRequestError("the request names a partition twice; expected each partition once")
    parts = split_records(records, [partition.records_bytes for partition in header.partitions])
    partitions = [_partition_records(partition, part) for partition, part in zip(header.partitions, parts, strict=True)]
    produce = Produce(
        header.acks,
        given(header, "timeout_ms", timeout_ms),
        header.transactional_id,
        partitions,
        client_host=client_host,
    )
    return produce, header.client_id


def encode(answer: Produced) -> ProducedPartition:
    """Returns the answer for one partition."""
    encoded = ProducedPartition(
        topic=answer.topic_partition.topic,
        partition=answer.topic_partition.partition,
        base_offset=answer.base_offset,
        log_append_time_ms=answer.log_append_time_ms,
        log_start_offset=answer.log_start_offset,
    )
    if answer.error_code:
        encoded.error_code, encoded.error_message = answer.error_code, answer.error_message
        encoded.current_leader, encoded.current_leader_epoch = answer.current_leader, answer.current_leader_epoch
        for index, message in answer.record_errors:
            encoded.record_errors.add(index=index, message=message)
    return encoded


def _partition_records(partition: ProducePartition, records: memoryview) -> PartitionRecords:
    writer = None
    if partition.HasField("writer"):
        fence = partition.writer
        base_offset = fence.base_offset if fence.HasField("base_offset") else None
        writer = ShardWriter(fence.producer_id, fence.producer_epoch, fence.transaction_version, base_offset)
    topic_partition = TopicPartition(partition.topic, partition.partition)
    return PartitionRecords(topic_partition, records, partition.current_leader_epoch, writer)
