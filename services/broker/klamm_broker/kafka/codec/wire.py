"""Reads and writes messages of Kafka's protocol by hand, for the hot messages, which have few fields."""

from __future__ import annotations

from collections.abc import Sequence

from klamm.errors import KlammError
from klamm.kafka_types.reader import KafkaReader
from klamm.kafka_types.writer import KafkaWriter
from klamm_broker.io.record_file import RecordFile

Part = bytes | bytearray | memoryview | RecordFile
"""A piece of an answer."""


class MalformedRequestError(KlammError):
    """Raised if received bytes do not follow the protocol. The connection is then closed."""


class RequestReader(KafkaReader[memoryview]):
    """Reads one request. The values that it returns are valid as long as the frame is."""

    __slots__ = ()

    error = MalformedRequestError


class AnswerWriter(KafkaWriter):
    """Writes one answer. `parts` returns it in pieces. Large pieces are not copied."""

    __slots__ = ("_parts",)

    def __init__(self, *, flexible: bool) -> None:
        self._flexible = flexible
        self._open = bytearray()
        self._parts: list[Part] = []

    def parts(self) -> list[Part]:
        """Returns everything written so far, in order."""
        return [*self._parts, self._open]

    def records(self, records: Sequence[Part], size_bytes: int) -> None:
        """Writes record batches as one `bytes` field, without a copy."""
        self.array_size(size_bytes)
        if size_bytes:
            self._parts.append(self._open)
            self._parts.extend(records)
            self._open = bytearray()
