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
    """A write with what waits for it."""

    write: LogWrite[RecordT]
    replies: Replies
    """The answers to give when the write is durable; none once their requesters were told that it takes too long."""
    then: Any
    """What else the rules do when the write is decided, as data; None once that was done, or if there is nothing."""


class WriteQueue(Generic[RecordT]):
    """Every shard has one."""

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
        """The next write, to be handed to the log."""
        write = LogWrite(write_id=self._next_write_id, records=records, producer=producer, marker=marker)
        self._next_write_id += 1
        self._pending[write.write_id] = PendingWrite(write, replies, then)
        return write

    def take(self, write_id: int) -> PendingWrite[RecordT]:
        """Removes the oldest write, which the log has decided."""
        assert next(iter(self._pending)) == write_id, (write_id, list(self._pending)[:3])
        return self._pending.pop(write_id)
