from klamm.admin import Admin as Admin
from klamm.admin import AsyncAdmin as AsyncAdmin
from klamm.admin import NewTopic as NewTopic
from klamm.arrow_reader import read_arrow as read_arrow
from klamm.batches import PreparedPart as PreparedPart
from klamm.consumer import AsyncConsumer as AsyncConsumer
from klamm.consumer import Consumer as Consumer
from klamm.consumer import ConsumerRecord as ConsumerRecord
from klamm.errors import KlammError as KlammError
from klamm.errors import SerializationError as SerializationError
from klamm.ledger_ids import LedgerId as LedgerId
from klamm.model import TopicPartition as TopicPartition
from klamm.offsets import (
    ConsumerGroupMetadata as ConsumerGroupMetadata,
)
from klamm.offsets import (
    OffsetAndMetadata as OffsetAndMetadata,
)
from klamm.offsets import (
    OffsetAndTimestamp as OffsetAndTimestamp,
)
from klamm.producer import (
    AsyncProducer as AsyncProducer,
)
from klamm.producer import (
    Producer as Producer,
)
from klamm.producer import (
    ProducerRecord as ProducerRecord,
)
from klamm.producer import (
    RecordMetadata as RecordMetadata,
)
from klamm.version import __version__ as __version__
