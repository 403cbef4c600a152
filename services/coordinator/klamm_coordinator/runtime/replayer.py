"""Loading a shard: the batches of its log, one after the other, into the state of its rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from klamm.records import BatchHeader, Buffer, decode_batch

RecordT = TypeVar("RecordT")


class Replayer(Protocol):
    """Replays the records of one load; not used after it."""

    skipped_count: int
    """Records of kinds that are not known here."""

    def replay_batch(self, buffer: Buffer, position: int, header: BatchHeader) -> None:
        """Applies the batch at `position`. Raises SchemaError, or a CorruptBatchError."""


class RecordReplayer(Generic[RecordT]):
    """Decodes record by record; `decode` gives None for a kind of record that it does not know."""

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
