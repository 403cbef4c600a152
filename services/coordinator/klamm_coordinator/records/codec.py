"""Reading the schemas of the internal topics. They are written with `KafkaWriter`.

A reader ignores the tagged fields that it does not know (KIP-482).
"""

from __future__ import annotations

from klamm.errors import KlammError
from klamm.kafka_types.reader import KafkaReader


class SchemaError(KlammError):
    """Bytes that do not follow the schema they claim to follow."""


class SchemaReader(KafkaReader[bytes]):
    """Reads one value from its start."""

    __slots__ = ()

    error = SchemaError
