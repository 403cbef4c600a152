"""Reads a Fetch request and writes its answer, in the messages of `proto/klamm/v1/broker.proto`."""

from __future__ import annotations

from typing import Final

from klamm.model import TopicPartition
from klamm.wire.v1.broker_pb2 import AbortedTransaction, DivergingEpoch, FetchedPartition, FetchRequest
from klamm_broker.handlers.fetch import FetchQuery, reader_terms
from klamm_broker.handlers.parkers import ClientHost
from klamm_broker.replica.fetch_reader import FetchCursor, PartitionAnswer
from klamm_server.rpc.absent_fields import UNKNOWN, given, or_unknown

ANY_SIZE: Final = 2**31 - 1
"""The limit of a request without one. The broker's `fetch.max.bytes` applies to every response."""
_PARTITION_BYTES: Final = 1024**2
"""The limit of a partition without one: the default of `max.partition.fetch.bytes`."""


def decode(request: FetchRequest, client_host: ClientHost, max_bytes: int, *, rack: str = "") -> FetchQuery:
    """Returns the query of a request. Raises InvalidRequestError."""
    # A request may have thousands of partitions. Only a 0 may be absent, and HasField here is faster than `or_unknown`.
    cursors = [
        FetchCursor(
            TopicPartition(partition.topic, partition.partition),
            partition.fetch_offset,
            max(0, partition.max_bytes or given(partition, "max_bytes", _PARTITION_BYTES)),
            partition.current_leader_epoch or (0 if partition.HasField("current_leader_epoch") else UNKNOWN),
            partition.last_fetched_epoch or (0 if partition.HasField("last_fetched_epoch") else UNKNOWN),
        )
        for partition in request.partitions
    ]
    terms = reader_terms(or_unknown(request, "replica_id"), request.isolation_level, rack)
    return FetchQuery(cursors, request.max_wait_ms, request.min_bytes, max_bytes, terms, client_host)


def encode(answer: PartitionAnswer) -> FetchedPartition:
    """Returns the answer for one partition."""
    fetched = FetchedPartition(
        topic=answer.topic_partition.topic,
        partition=answer.topic_partition.partition,
        error_code=answer.error_code,
        error_message=answer.error_message,
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.last_stable_offset,
        log_start_offset=answer.log_start_offset,
        records_bytes=answer.records_bytes,
        current_leader=answer.current_leader,
        current_leader_epoch=answer.current_leader_epoch,
    )
    for aborted_transaction in answer.aborted_transactions:
        fetched.aborted_transactions.append(
            AbortedTransaction(
                producer_id=aborted_transaction.producer_id, first_offset=aborted_transaction.first_offset
            )
        )
    if answer.diverging is not None:
        fetched.diverging.CopyFrom(DivergingEpoch(epoch=answer.diverging.epoch, end_offset=answer.diverging.end_offset))
    if answer.preferred_read_replica >= 0:
        fetched.preferred_read_replica = answer.preferred_read_replica
    return fetched
