"""The writes of a shard that its log has not decided yet, in order, with the answers and requests that wait for each.

Invariant: writes are decided in the order in which they were added.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from klamm_coordinator.runtime.log_write import LogWrite, TxnMarker, TxnProducer

RecordT = TypeVar("RecordT")
Replies = tuple[tuple[int, Any], ...]
"""Answers by the ids of their requests."""


@dataclass(slots=True)
class PendingWrite(Generic[RecordT]):
    """A write that the log has not decided, with the answers and the follow-up that wait for it."""

    write: LogWrite[RecordT]
    replies: Replies
    """The answers that are sent when the write is durable. Empty after the requests got an error because the write
    takes too long."""
    then: Any
    """The follow-up that the rules carry out when the write is decided, as data. None if there is none, or if it was
    done."""


class WriteQueue(Generic[RecordT]):
    """The writes of one shard that its log has not decided yet, in order."""

    def __init__(self) -> None:
        self._pending: dict[int, PendingWrite[RecordT]] = {}
        self._next_write_id = 0

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[PendingWrite[RecordT]]:
        return iter(self._pending.values())

    def __getitem__(self, write_id: int) -> PendingWrite[RecordT]:
        return self._pending[write_id]

    def add(
        self,
        records: tuple[RecordT, ...],
        *,
        replies: Replies,
        then: Any,
        producer: TxnProducer | None,
        marker: TxnMarker | None,
    ) -> LogWrite[RecordT]:
        """Adds a write to the end of the queue and returns it, so that the caller can hand it to the log."""
        write = LogWrite(write_id=self._next_write_id, records=records, producer=producer, marker=marker)
        self._next_write_id += 1
        self._pending[write.write_id] = PendingWrite(write, replies, then)
        return write

    def take(self, write_id: int) -> PendingWrite[RecordT]:
        """Removes and returns the oldest write, which the log has decided."""
        assert next(iter(self._pending)) == write_id, (write_id, list(self._pending)[:3])
        return self._pending.pop(write_id)
