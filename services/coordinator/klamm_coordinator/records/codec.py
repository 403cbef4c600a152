"""The reader for keys and values of the internal topics. `KafkaWriter` writes them.

A reader ignores the tagged fields that it does not know (KIP-482).
"""

from __future__ import annotations

from klamm.errors import KlammError
from klamm.kafka_types.reader import KafkaReader


class SchemaError(KlammError):
    """Raised if the bytes of a key or value do not follow their schema."""


class SchemaReader(KafkaReader[bytes]):
    """Reads the fields of one key or value, from its start."""

    __slots__ = ()

    error = SchemaError
