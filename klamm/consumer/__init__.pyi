from klamm.consumer.async_consumer import AsyncConsumer as AsyncConsumer
from klamm.consumer.errors import (
    BatchTooLargeError as BatchTooLargeError,
)
from klamm.consumer.errors import (
    CorruptRecordError as CorruptRecordError,
)
from klamm.consumer.errors import (
    LogTruncation as LogTruncation,
)
from klamm.consumer.errors import (
    LogTruncationError as LogTruncationError,
)
from klamm.consumer.errors import (
    NoOffsetForPartitionError as NoOffsetForPartitionError,
)
from klamm.consumer.errors import (
    RecordDeserializationError as RecordDeserializationError,
)
from klamm.consumer.group.rebalance_reports import ConsumerRebalanceListener as ConsumerRebalanceListener
from klamm.consumer.position_reset import PositionReset as PositionReset
from klamm.consumer.record import ConsumerRecord as ConsumerRecord
from klamm.consumer.sync_consumer import Consumer as Consumer
from klamm.consumer.threads.consumer_threads import ConsumerThreads as ConsumerThreads
from klamm.consumer.threads.worker_pool import WorkerPool as WorkerPool
