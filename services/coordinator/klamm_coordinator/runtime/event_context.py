"""One step of a shard while it runs: its time, its timers, and the effects that the rules ask for.

Rules get nothing else from outside. With a turn they can answer a request, append records, give an order, set a timer,
draw a random number, and log a line.
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
class EventContext(Generic[SettingsT, RecordT]):
    """The time, timers and effects of one step. The runtime makes a new turn for every step."""

    now: Now
    settings: SettingsT
    rng: random.Random
    timers: Timers[Any]
    _writes: WriteQueue[RecordT]
    _on_write: Callable[[LogWrite[RecordT], EventContext[SettingsT, RecordT]], None]
    effects: ShardEffects[RecordT] = field(default_factory=ShardEffects)

    def reply(self, reply_id: int, reply: Any) -> None:
        """Answers the request that has the id `reply_id`."""
        self.effects.replies.append((reply_id, reply))

    def append(
        self,
        records: tuple[RecordT, ...],
        *,
        replies: Replies = (),
        then: Any = None,
        producer: TxnProducer | None = None,
    ) -> None:
        """Appends `records` to the log together, as part of the producer's transaction if there is one.

        The replies are sent, and `then` is carried out, when the records are durable, have failed, or take too long."""
        self._begin(self._writes.add(records, replies=replies, then=then, producer=producer, marker=None))

    def append_marker(self, producer: TxnProducer, marker: TxnMarker, *, replies: Replies) -> None:
        """Appends the end of a transaction to the log. The replies are sent when the marker is durable, has failed, or
        takes too long."""
        self._begin(self._writes.add((), replies=replies, then=None, producer=producer, marker=marker))

    def order(self, order: Any) -> None:
        """Asks the shell for an action outside of the shard and its log."""
        self.effects.orders.append(order)

    def note(self, line: str) -> None:
        """Asks the shell to write one line to the program's log."""
        self.effects.notes.append(line)

    def schedule(self, timer: Any, delay_ms: int) -> None:
        """Sets or moves the deadline of `timer` to `delay_ms` from now."""
        self.timers.schedule(timer, self.now.monotonic_ms + delay_ms)

    def _begin(self, write: LogWrite[RecordT]) -> None:
        self.effects.writes.append(write)
        self._on_write(write, self)
