"""Decodes the transactional ids that coordinators describe, and the producers that brokers describe."""

from __future__ import annotations

from klamm.admin.types.transactions import ProducerState, TransactionDescription, TransactionListing
from klamm.model import TopicPartition
from klamm.wire.v1 import broker_pb2, coordinator_pb2


def transaction_listing(message: coordinator_pb2.ListedTransaction) -> TransactionListing:
    return TransactionListing(
        transactional_id=message.transactional_id, producer_id=message.producer_id, state=message.state
    )


def transaction_description(message: coordinator_pb2.DescribedTransaction) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=message.transactional_id,
        state=message.state,
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
        transaction_timeout_ms=message.transaction_timeout_ms,
        start_time_ms=message.start_time_ms,
        partitions=tuple(
            TopicPartition(topic.topic, number) for topic in message.topics for number in topic.partitions
        ),
        prepared_ms=message.prepared_ms,
    )


def producer(message: broker_pb2.ProducerDescription) -> ProducerState:
    return ProducerState(
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
        last_sequence=message.last_sequence,
        last_timestamp_ms=message.last_timestamp_ms,
        coordinator_epoch=message.coordinator_epoch,
        current_txn_start_offset=message.current_txn_start_offset,
    )
