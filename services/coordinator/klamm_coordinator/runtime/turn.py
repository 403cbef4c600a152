"""One step of a shard while it runs: its moment, its timers, and what the rules ask for.

Rules get a `Turn` and nothing else from outside, so what they can do is what is here: answer a request, want records
stored, give an order, set a timer, draw a random number, leave a note for the log.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from klamm_coordinator.runtime.effects import ShardEffects
from klamm_coordinator.runtime.log_write import LogWrite, TxnMarker, TxnProducer
from klamm_coordinator.runtime.timers import Now, Timers
from klamm_coordinator.runtime.write_queue import Replies, WriteQueue

SettingsT = TypeVar("SettingsT")
RecordT = TypeVar("RecordT")


@dataclass(slots=True)
class Turn(Generic[SettingsT, RecordT]):
    """Alive for one step only."""

    now: Now
    settings: SettingsT
    rng: random.Random
    timers: Timers[Any]
    _writes: WriteQueue[RecordT]
    _on_write: Callable[[LogWrite[RecordT], Turn[SettingsT, RecordT]], None]
    effects: ShardEffects[RecordT] = field(default_factory=ShardEffects)

    def reply(self, reply_id: int, reply: Any) -> None:
        """Answers a request."""
        self.effects.replies.append((reply_id, reply))

    def append(
        self,
        records: tuple[RecordT, ...],
        *,
        replies: Replies = (),
        then: Any = None,
        producer: TxnProducer | None = None,
    ) -> None:
        """Wants `records` stored together, as part of the producer's transaction if there is one.

        The replies are given, and `then` is done, when they are durable, or will never be."""
        self._begin(self._writes.add(records, replies=replies, then=then, producer=producer, marker=None))

    def append_marker(self, producer: TxnProducer, marker: TxnMarker, *, replies: Replies) -> None:
        """Wants the end of a transaction stored; the replies are parked behind it."""
        self._begin(self._writes.add((), replies=replies, then=None, producer=producer, marker=marker))

    def order(self, order: Any) -> None:
        """Wants something done outside of the shard and its log."""
        self.effects.orders.append(order)

    def note(self, line: str) -> None:
        """One line for the log."""
        self.effects.notes.append(line)

    def schedule(self, timer: Any, delay_ms: int) -> None:
        """Sets or moves a deadline, counted from now."""
        self.timers.schedule(timer, self.now.monotonic_ms + delay_ms)

    def _begin(self, write: LogWrite[RecordT]) -> None:
        self.effects.writes.append(write)
        self._on_write(write, self)
