"""Klamm's client library: records, producer, consumer, admin, command line. It knows no service.

The public names below are loaded on first use, so that `import klamm` costs next to nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from klamm.lazy_names import lazy_names
from klamm.version import __version__

if TYPE_CHECKING:
    from klamm.admin import Admin, AsyncAdmin, NewTopic
    from klamm.arrow_reader import read_arrow
    from klamm.batches import PreparedPart
    from klamm.consumer import AsyncConsumer, Consumer, ConsumerRecord
    from klamm.errors import KlammError, SerializationError
    from klamm.ledger_ids import LedgerId
    from klamm.model import TopicPartition
    from klamm.offsets import ConsumerGroupMetadata, OffsetAndMetadata, OffsetAndTimestamp
    from klamm.producer import AsyncProducer, Producer, ProducerRecord, RecordMetadata

# gRPC reads the variable when it is imported. Its fork handlers start threads in a child that is about to run another
# program. They sometimes kill the child, because its files are closed under them (Spark's JVM is such a child).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

_MODULES: Final = {
    "Admin": "klamm.admin",
    "AsyncAdmin": "klamm.admin",
    "AsyncConsumer": "klamm.consumer",
    "AsyncProducer": "klamm.producer",
    "Consumer": "klamm.consumer",
    "ConsumerGroupMetadata": "klamm.offsets",
    "ConsumerRecord": "klamm.consumer",
    "KlammError": "klamm.errors",
    "LedgerId": "klamm.ledger_ids",
    "NewTopic": "klamm.admin",
    "OffsetAndMetadata": "klamm.offsets",
    "OffsetAndTimestamp": "klamm.offsets",
    "PreparedPart": "klamm.batches",
    "Producer": "klamm.producer",
    "ProducerRecord": "klamm.producer",
    "RecordMetadata": "klamm.producer",
    "SerializationError": "klamm.errors",
    "TopicPartition": "klamm.model",
    "read_arrow": "klamm.arrow_reader",
}

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "KlammError",
    "LedgerId",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PreparedPart",
    "Producer",
    "ProducerRecord",
    "RecordMetadata",
    "SerializationError",
    "TopicPartition",
    "__version__",
    "read_arrow",
]


__getattr__, __dir__ = lazy_names(globals(), _MODULES)
