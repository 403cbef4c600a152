"""One step of a shard while it runs: its moment, its timers, and what it collects.

The group and offset rules get a `Turn` and nothing else from outside, so what they can do is what is here:
answer a request, want records stored, set a timer, draw a random id, leave a note for the log.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field
from typing import NamedTuple

from klamm_coordinator.effects import Reply, Then
from klamm_coordinator.records.schemas import Record
from klamm_coordinator.settings import GroupSettings
from klamm_coordinator.timers import Now, Timers
from klamm_coordinator.write import TxnMarker, TxnProducer


@dataclass(frozen=True, slots=True)
class SessionTimer:
    """A member (or a pending one) was silent for its session timeout."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class JoinTimer:
    """The join phase of a rebalance has lasted long enough."""

    group_id: str


@dataclass(frozen=True, slots=True)
class SyncTimer:
    """Members of a new generation had long enough to ask for their assignment (KAFKA-12890)."""

    group_id: str


@dataclass(frozen=True, slots=True)
class WriteTimer:
    """An append takes too long to let its requester wait on."""

    write_id: int


@dataclass(frozen=True, slots=True)
class ExpiryTimer:
    """Time to look for expired offsets."""


@dataclass(frozen=True, slots=True)
class ConsumerSessionTimer:
    """A member of the new protocol was silent for group.consumer.session.timeout.ms."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ConsumerRebalanceTimer:
    """A member of the new protocol has not given up its partitions for its rebalance timeout."""

    group_id: str
    member_id: str


TimerKey = (
    SessionTimer | JoinTimer | SyncTimer | WriteTimer | ExpiryTimer | ConsumerSessionTimer | ConsumerRebalanceTimer
)


class WantedWrite(NamedTuple):
    """A write as the rules want it."""

    records: tuple[Record, ...]
    then: Then
    producer: TxnProducer | None
    marker: TxnMarker | None


@dataclass(slots=True)
class Turn:
    """Alive for one step only."""

    now: Now
    settings: GroupSettings
    timers: Timers[TimerKey]
    rng: random.Random
    replies: list[tuple[int, Reply]] = field(default_factory=list)
    writes: list[WantedWrite] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def reply(self, reply_id: int, reply: Reply) -> None:
        """Answers a request."""
        self.replies.append((reply_id, reply))

    def append(self, records: tuple[Record, ...], then: Then, *, producer: TxnProducer | None = None) -> None:
        """Wants `records` stored together, as part of the producer's transaction if there is one, and `then` done."""
        self.writes.append(WantedWrite(records, then, producer, None))

    def append_marker(self, producer: TxnProducer, marker: TxnMarker, then: Then) -> None:
        """Wants the end of a transaction stored, and `then` done."""
        self.writes.append(WantedWrite((), then, producer, marker))

    def note(self, line: str) -> None:
        """One line for the log."""
        self.notes.append(line)

    def schedule(self, timer: TimerKey, delay_ms: int) -> None:
        """Sets or moves a deadline, counted from now."""
        self.timers.schedule(timer, self.now.monotonic_ms + delay_ms)

    def new_member_id(self, prefix: str) -> str:
        """`<client or instance id>-<random uuid>`, as Kafka's."""
        return f"{prefix}-{uuid.UUID(int=self.rng.getrandbits(128), version=4)}"
