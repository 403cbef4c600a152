"""Producers: they send records in batches, and report the outcome of each record once.

Producer | AsyncProducer   the facades; `intake` checks and serializes the arguments of `send`
  engine                   client, accumulator and sender of one producer, and its topics
    transactions           their begin and end; `transaction_state` (pure) has the calls allowed in each state
    accumulator (pure)     a queue of batches per partition, bounded memory, when each batch is due
    sender                 requests to brokers, outcomes, retries
    arrow_table            the rows of `send_arrow` as whole batches
    future                 one outcome per batch, a pointer into it per record
"""

from __future__ import annotations

from klamm.errors import PartitionerError, SerializationError
from klamm.partitioner import Partitioner, PartitionInfo, key_partition
from klamm.producer.async_producer import AsyncProducer
from klamm.producer.config import ProducerConfig
from klamm.producer.future import AsyncManyFuture, AsyncRecordFuture, ManyFuture, RecordFuture
from klamm.producer.interceptors import ProducerInterceptor
from klamm.producer.producer import Producer
from klamm.producer.record import ProducerRecord, RecordMetadata

__all__ = [
    "AsyncManyFuture",
    "AsyncProducer",
    "AsyncRecordFuture",
    "ManyFuture",
    "PartitionInfo",
    "Partitioner",
    "PartitionerError",
    "Producer",
    "ProducerConfig",
    "ProducerInterceptor",
    "ProducerRecord",
    "RecordFuture",
    "RecordMetadata",
    "SerializationError",
    "key_partition",
]
