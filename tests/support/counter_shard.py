"""A third kind of shard, which only tests have: counters.

It shows everything that a kind of shard must have: its records and topic, its requests, and its rules. A counter has
one write in flight at a time. A request that arrives meanwhile waits, and the next write serves all waiting requests. A
counter without additions is deleted after an hour. Every hundred is reported to the outside, after it is stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, assert_never

from klamm.errors import ErrorCode
from klamm_coordinator.runtime.event_context import EventContext
from klamm_coordinator.runtime.log_write import LogWrite
from klamm_coordinator.runtime.replayer import RecordReplayer
from klamm_coordinator.runtime.settings import ShardSettings
from klamm_coordinator.runtime.shard_topic import ShardTopic
from klamm_coordinator.runtime.timers import Timers
from klamm_coordinator.runtime.write_queue import PendingWrite

FORGOTTEN_AFTER_MS = 3_600_000
WRITE_TIMEOUT_MS = 5_000


class CounterRecord(NamedTuple):
    """A counter's total. None deletes the counter."""

    name: str
    total: int | None


def encode(record: CounterRecord) -> tuple[bytes, bytes | None]:
    return b"c" + record.name.encode(), None if record.total is None else b"%d" % record.total


def decode(key: bytes, value: bytes | None) -> CounterRecord | None:
    if key[:1] != b"c":
        return None
    return CounterRecord(key[1:].decode(), None if value is None else int(value))


COUNTERS = ShardTopic(name="__counters", encode=encode, claim=CounterRecord("", None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """A request to add to a counter."""

    reply_id: int
    name: str
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The reply to an addition: the counter's total after the addition was stored."""

    error: ErrorCode = ErrorCode.NONE
    total: int = 0


@dataclass(frozen=True, slots=True)
class Ring:
    """An effect: the counter has passed another hundred."""

    name: str


@dataclass(frozen=True, slots=True)
class IdleTimer:
    """Fires after a time without additions to the counter."""

    name: str


CounterTurn = EventContext[ShardSettings, CounterRecord]


class CounterRules:
    """The rules of a shard of counters, for a `ShardRuntime`."""

    write_timeout_ms = WRITE_TIMEOUT_MS

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        """The durable totals, by counter."""
        self._waiting: dict[str, deque[Add]] = {}
        """Counters with a write under way, and the requests that wait for it."""

    @property
    def waiting_count(self) -> int:
        return sum(map(len, self._waiting.values()))

    def replayer(self) -> RecordReplayer[CounterRecord]:
        return RecordReplayer(decode, self.replay)

    def summary(self) -> str:
        return f"counters={len(self.totals)}"

    def replay(self, record: CounterRecord) -> None:
        if record.total is None:
            self.totals.pop(record.name, None)
        else:
            self.totals[record.name] = record.total

    def start(self, context: CounterTurn) -> None:
        for name in self.totals:
            context.schedule(IdleTimer(name), FORGOTTEN_AFTER_MS)

    def close(self) -> None:
        pass

    def passes_when_full(self, request: Any) -> bool:
        return isinstance(request, Add) and request.amount == 0

    def on_refused(self, request: Any, context: CounterTurn) -> None:
        pass

    def handle(self, event: Add, context: CounterTurn) -> None:
        if event.name in self._waiting:
            self._waiting[event.name].append(event)
        else:
            self._add([event], context)

    def on_timer(self, timer: IdleTimer, context: CounterTurn) -> None:
        if timer.name not in self._waiting:
            context.append((CounterRecord(timer.name, None),), then=timer)

    def begin_write(self, write: LogWrite[CounterRecord]) -> None:
        self._waiting[write.records[0].name] = deque()

    def end_write(self, write: LogWrite[CounterRecord], *, is_appended: bool) -> None:
        for record in write.records if is_appended else ():
            self.replay(record)

    def refused(self, reply: Total, broker_error: ErrorCode) -> Total:
        return replace(reply, error=broker_error, total=0)

    def follow(self, then: IdleTimer | Ring, broker_error: ErrorCode, context: CounterTurn) -> None:
        match then:
            case Ring():
                if broker_error is ErrorCode.NONE:
                    context.order(then)
            case IdleTimer(name):
                context.note(f"counter={name} forgotten error={broker_error.name}")
            case _:
                assert_never(then)

    def resume(self, pending: PendingWrite[CounterRecord], broker_error: ErrorCode, context: CounterTurn) -> None:
        (record,) = pending.write.records
        if record.name in self.totals:
            context.schedule(IdleTimer(record.name), FORGOTTEN_AFTER_MS)
        waiting = self._waiting.pop(record.name)
        if waiting:
            self._add(waiting, context)

    def check_invariants(self, timers: Timers[Any], writes: Collection[LogWrite[CounterRecord]]) -> None:
        assert self._waiting.keys() == {record.name for write in writes for record in write.records}
        for name in self.totals:
            assert name in self._waiting or IdleTimer(name) in timers, name

    def _add(self, requests: Collection[Add], context: CounterTurn) -> None:
        name = next(iter(requests)).name
        before = total = self.totals.get(name, 0)
        replies = []
        for request in requests:
            total += request.amount
            replies.append((request.reply_id, Total(total=total)))
        ring = Ring(name) if total // 100 > before // 100 else None
        context.append((CounterRecord(name, total),), replies=tuple(replies), then=ring)
