"""One shard as a pure state machine, for any rules: `step(event, now) -> effects`.

The shell appends the records of a write. The write's replies are parked until the records are acknowledged. If the
append fails, the state is unchanged, and all requests of the write get an error. If the append takes longer than
`write_timeout_ms`, the requests get the rules' error for REQUEST_TIMED_OUT, so that the clients retry. The write keeps
its place in the queue. It may be in the log, so it must be decided before all later writes.

Invariants: those of the rules; every write that has parked replies has a timer.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from klamm.errors import ErrorCode
from klamm_coordinator.runtime.effects import ShardEffects
from klamm_coordinator.runtime.event_context import EventContext
from klamm_coordinator.runtime.events import TimePassed, WriteAppended, WriteFailed
from klamm_coordinator.runtime.log_write import LogWrite
from klamm_coordinator.runtime.rules import Rules
from klamm_coordinator.runtime.settings import ShardSettings
from klamm_coordinator.runtime.timers import Now, Timers
from klamm_coordinator.runtime.write_queue import PendingWrite, WriteQueue

RulesT = TypeVar("RulesT", bound=Rules)


@dataclass(frozen=True, slots=True)
class _WriteTimer:
    """Due when a write has taken `write_timeout_ms`. The requests of the write are then answered with an error."""

    write_id: int


class ShardRuntime(Generic[RulesT]):
    """Runs one shard. The caller loads it through `rules.replayer()`, calls `start` once, and then `step` for each
    event."""

    def __init__(self, rules: RulesT, settings: ShardSettings, rng: random.Random) -> None:
        self.rules = rules
        """The shard's rules. Code outside of the runtime only reads from them."""
        self._settings = settings
        self._rng = rng
        self._timers: Timers[Any] = Timers()
        self._writes: WriteQueue[Any] = WriteQueue()

    @property
    def pending_write_count(self) -> int:
        """The number of writes that the log has not decided, plus the number of requests that wait for such a write."""
        return len(self._writes) + self.rules.waiting_count

    def takes(self, request: Any) -> bool:
        """Returns False if `coordinator.pending.writes.max` writes wait already and the request must therefore be
        rejected."""
        is_full = self.pending_write_count >= self._settings.pending_writes_max
        return not is_full or self.rules.passes_when_full(request)

    def refuse(self, request: Any, now: Now) -> ShardEffects[Any]:
        """Notes a request that the shard does not take. The caller answers it."""
        context = self._context(now)
        self.rules.on_refused(request, context)
        return context.effects

    def next_deadline_ms(self) -> int | None:
        """Returns the monotonic time in ms of the next timer, when the shell must step with `TimePassed`. None means no
        timer is set."""
        return self._timers.next_deadline_ms()

    def start(self, now: Now) -> ShardEffects[Any]:
        """Starts the rules after all records were loaded."""
        context = self._context(now)
        self.rules.start(context)
        return context.effects

    def step(self, event: Any, now: Now) -> ShardEffects[Any]:
        """Handles the event, and then the timers that are due. A heartbeat that arrives at the last moment keeps its
        member alive."""
        context = self._context(now)
        self._handle(event, context)
        for timer in self._timers.pop_due(now.monotonic_ms):
            if isinstance(timer, _WriteTimer):
                self._give_up_waiting(self._writes[timer.write_id], context)
            else:
                self.rules.on_timer(timer, context)
        return context.effects

    def check_invariants(self) -> None:
        """Asserts the invariants that the module's docstring lists."""
        for pending in self._writes:
            is_waited_for = bool(pending.replies) or pending.then is not None
            assert not is_waited_for or _WriteTimer(pending.write.write_id) in self._timers, pending
        self.rules.check_invariants(self._timers, [pending.write for pending in self._writes])

    def _context(self, now: Now) -> EventContext[Any, Any]:
        return EventContext(now, self._settings, self._rng, self._timers, self._writes, self._on_write)

    def _handle(self, event: Any, context: EventContext[Any, Any]) -> None:
        match event:
            case WriteAppended(write_id=write_id):
                self._on_decided(write_id, ErrorCode.NONE, context)
            case WriteFailed(write_id=write_id, error=error):
                self._on_decided(write_id, error, context)
            case TimePassed():
                pass
            case _:
                self.rules.handle(event, context)

    # Writes

    def _on_write(self, write: LogWrite[Any], context: EventContext[Any, Any]) -> None:
        context.schedule(_WriteTimer(write.write_id), self.rules.write_timeout_ms)
        self.rules.begin_write(write)

    def _on_decided(self, write_id: int, error: ErrorCode, context: EventContext[Any, Any]) -> None:
        pending = self._writes.take(write_id)
        self._timers.cancel(_WriteTimer(write_id))
        self.rules.end_write(pending.write, is_appended=error is ErrorCode.NONE)
        self._answer(pending, error, context)
        self.rules.resume(pending, error, context)

    def _give_up_waiting(self, pending: PendingWrite[Any], context: EventContext[Any, Any]) -> None:
        self._answer(pending, ErrorCode.REQUEST_TIMED_OUT, context)
        pending.replies, pending.then = (), None

    def _answer(self, pending: PendingWrite[Any], error: ErrorCode, context: EventContext[Any, Any]) -> None:
        for reply_id, reply in pending.replies:
            context.reply(reply_id, self.rules.refused(reply, error) if error else reply)
        if pending.then is not None:
            self.rules.follow(pending.then, error, context)
