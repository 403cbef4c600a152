"""The consumer: subscriptions and groups, fetching, positions and commits.

subscription, offset_policy                      what is consumed and from where (pure)
membership, assignors/, consumer_protocol        Kafka's classic group protocol from the member's side (pure)
consumer_membership                              the same of KIP-848 (pure); with consumer_group_link and reconciler
fetch_buffer, record_reader, record_drain        from fetched bytes to ConsumerRecords (pure)
read_replicas                                    leader or closer follower (pure)
fetcher, group_link, offset_store, position_finder      the calls to brokers and the coordinator
rebalancer, consumer_core                        how the parts work together
async_consumer, sync_consumer                    the two faces
consumer_threads                                 several threads with a consumer each
work_ledger (pure), worker_pool                  one consumer and a pool of threads

The public names below are loaded on first use: an Admin needs only two of these modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm.lazy_names import lazy_names

if TYPE_CHECKING:
    from klamm.consumer.async_consumer import AsyncConsumer
    from klamm.consumer.consumer_threads import ConsumerThreads
    from klamm.consumer.errors import (
        CorruptRecordError,
        LogTruncation,
        LogTruncationError,
        NoOffsetForPartitionError,
        RecordDeserializationError,
    )
    from klamm.consumer.rebalance_reports import ConsumerRebalanceListener
    from klamm.consumer.record import ConsumerRecord
    from klamm.consumer.sync_consumer import Consumer
    from klamm.consumer.worker_pool import WorkerPool

_MODULES: Final = {
    "AsyncConsumer": "klamm.consumer.async_consumer",
    "Consumer": "klamm.consumer.sync_consumer",
    "ConsumerRebalanceListener": "klamm.consumer.rebalance_reports",
    "ConsumerRecord": "klamm.consumer.record",
    "ConsumerThreads": "klamm.consumer.consumer_threads",
    "CorruptRecordError": "klamm.consumer.errors",
    "LogTruncation": "klamm.consumer.errors",
    "LogTruncationError": "klamm.consumer.errors",
    "NoOffsetForPartitionError": "klamm.consumer.errors",
    "RecordDeserializationError": "klamm.consumer.errors",
    "WorkerPool": "klamm.consumer.worker_pool",
}

__all__ = [
    "AsyncConsumer",
    "Consumer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerThreads",
    "CorruptRecordError",
    "LogTruncation",
    "LogTruncationError",
    "NoOffsetForPartitionError",
    "RecordDeserializationError",
    "WorkerPool",
]

__getattr__, __dir__ = lazy_names(globals(), _MODULES)
