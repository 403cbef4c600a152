"""Loads a shard: replays the batches of its log in order into the state of its rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from klamm.records import BatchHeader, Buffer, decode_batch

RecordT = TypeVar("RecordT")


class Replayer(Protocol):
    """Replays the records of one load of a shard. Every load uses a new replayer."""

    skipped_count: int
    """The number of records that were skipped, such as control records and records of an unknown kind."""

    def replay_batch(self, buffer: Buffer, position: int, header: BatchHeader) -> None:
        """Applies the batch at `position`. Raises SchemaError, or a CorruptBatchError."""


class RecordReplayer(Generic[RecordT]):
    """Decodes and replays record by record. `decode` returns None for a record of an unknown kind."""

    def __init__(
        self, decode: Callable[[bytes, bytes | None], RecordT | None], replay: Callable[[RecordT], None]
    ) -> None:
        self._decode = decode
        self._replay = replay
        self.skipped_count = 0

    def replay_batch(self, buffer: Buffer, position: int, header: BatchHeader) -> None:
        """Applies the batch at `position`. Raises SchemaError, or a CorruptBatchError."""
        for _, _, key, value, _ in decode_batch(buffer, position):
            record = None if key is None or header.is_control else self._decode(key, value)
            if record is None:
                self.skipped_count += 1
            else:
                self._replay(record)
