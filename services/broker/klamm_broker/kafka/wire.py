"""Requests and answers of Kafka's protocol, read and written by hand: for the hot messages, whose fields are few."""

from __future__ import annotations

from collections.abc import Sequence

from klamm.errors import KlammError
from klamm.kafka_types.reader import KafkaReader
from klamm.kafka_types.writer import KafkaWriter
from klamm_broker.io.record_file import RecordFile

Part = bytes | bytearray | memoryview | RecordFile
"""A piece of an answer."""


class MalformedRequestError(KlammError):
    """Bytes that are not what they must be: the connection they came over is closed."""


class RequestReader(KafkaReader[memoryview]):
    """Reads one request. What it takes out of it is valid as long as the frame is."""

    __slots__ = ()

    error = MalformedRequestError


class AnswerWriter(KafkaWriter):
    """Writes one answer; `parts` has it in pieces, the large ones as they were given."""

    __slots__ = ("_parts",)

    def __init__(self, *, flexible: bool) -> None:
        self._flexible = flexible
        self._open = bytearray()
        self._parts: list[Part] = []

    def parts(self) -> list[Part]:
        """Everything written so far, in order."""
        return [*self._parts, self._open]

    def records(self, records: Sequence[Part], size_bytes: int) -> None:
        """Record batches as one `bytes` field, not copied."""
        self.array_size(size_bytes)
        if size_bytes:
            self._parts.append(self._open)
            self._parts.extend(records)
            self._open = bytearray()
