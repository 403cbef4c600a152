"""The consumer: subscriptions and groups, fetching, positions and commits.

Each line may import the lines below it:

threads/                               run many threads on one consumer, or one consumer for each thread
sync_consumer, async_consumer          the public classes, for threads and for asyncio
core/                                  the consumer itself: it connects the parts below
classic/ kip848/                       the membership of a group, in the classic protocol and in that of KIP-848
fetch/ offsets/                        fetches of records from brokers; committed offsets and positions
group/                                 the parts that both protocols of membership share
config, assignors/, offset_policy,     settings, assignors, and the state of subscriptions and partitions
subscription, partition_state, record, errors,
position_reset

The membership modules, heartbeat_timer, subscription, partition_state, offset_policy, position_reset, fetch_buffer,
fetched_data_reader, fetched_columns_reader, record_drain, read_replicas and work_ledger are pure.

Python loads the public names below on first use, because an Admin needs only two of these modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm.lazy_names import lazy_names

if TYPE_CHECKING:
    from klamm.consumer.async_consumer import AsyncConsumer
    from klamm.consumer.errors import (
        BatchTooLargeError,
        CorruptRecordError,
        LogTruncation,
        LogTruncationError,
        NoOffsetForPartitionError,
        RecordDeserializationError,
    )
    from klamm.consumer.group.rebalance_reports import ConsumerRebalanceListener
    from klamm.consumer.position_reset import PositionReset
    from klamm.consumer.record import ConsumerRecord
    from klamm.consumer.sync_consumer import Consumer
    from klamm.consumer.threads.consumer_threads import ConsumerThreads
    from klamm.consumer.threads.worker_pool import WorkerPool

_MODULES: Final = {
    "AsyncConsumer": "klamm.consumer.async_consumer",
    "BatchTooLargeError": "klamm.consumer.errors",
    "Consumer": "klamm.consumer.sync_consumer",
    "ConsumerRebalanceListener": "klamm.consumer.group.rebalance_reports",
    "ConsumerRecord": "klamm.consumer.record",
    "ConsumerThreads": "klamm.consumer.threads.consumer_threads",
    "CorruptRecordError": "klamm.consumer.errors",
    "LogTruncation": "klamm.consumer.errors",
    "LogTruncationError": "klamm.consumer.errors",
    "NoOffsetForPartitionError": "klamm.consumer.errors",
    "PositionReset": "klamm.consumer.position_reset",
    "RecordDeserializationError": "klamm.consumer.errors",
    "WorkerPool": "klamm.consumer.threads.worker_pool",
}

__all__ = [
    "AsyncConsumer",
    "BatchTooLargeError",
    "Consumer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerThreads",
    "CorruptRecordError",
    "LogTruncation",
    "LogTruncationError",
    "NoOffsetForPartitionError",
    "PositionReset",
    "RecordDeserializationError",
    "WorkerPool",
]

__getattr__, __dir__ = lazy_names(globals(), _MODULES)
