"""A member's side of the new group protocol (KIP-848), as a state machine without I/O.

    UNJOINED  not a member; the next poll joins
    JOINING   the first heartbeat, with epoch 0, is under way or waits to be tried again
    MEMBER    has an epoch, and partitions by what the coordinator says
    LOST      the membership has ended, and other members may own the partitions; a poll has to tell the user
    FENCED    another process took over this group.instance.id: for ever

    UNJOINED -> JOINING (a poll)       JOINING -> MEMBER (an epoch)
    MEMBER   -> LOST (fenced, unknown, polls too far apart)
    LOST     -> UNJOINED (the user was told)
    any      -> UNJOINED (left, refused) | FENCED

There is one kind of request. It has only the fields that changed since the last answered request, and after a failure
all fields. The member sends heartbeats at the coordinator's interval, and at once after a change: another subscription,
or partitions released or received.

`step(event, now_ms)` returns what to do; `next_deadline_ms()` says when to step with `Ticked`. Follows
`org.apache.kafka.clients.consumer.internals.{AbstractHeartbeatRequestManager,ConsumerMembershipManager}`.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from klamm.consumer.group.identity import NO_GENERATION, Identity
from klamm.consumer.group.membership_events import (
    CommitRefused,
    Fail,
    ForgetCoordinator,
    LeaveRequested,
    Polled,
    Ticked,
    WakePoll,
)
from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm.retry import Backoff

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2

Assigned = Mapping[TopicPartition, bytes]
"""Partitions with the ids of their topics, because the coordinator identifies topics by id."""


class ConsumerMemberState(enum.Enum):
    """The states of a member. The module's docstring has the table."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    MEMBER = "member"
    LOST = "lost"
    FENCED = "fenced"


_COORDINATOR_GONE = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
)
_EXPELLED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)


class SubscribedTo(NamedTuple):
    """The subscription of a member."""

    topics: frozenset[str]
    pattern: str
    """An expression in RE2's syntax that the coordinator matches, or empty."""


NOTHING = SubscribedTo(frozenset(), "")


# --- events


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionChanged:
    """The user has changed the subscription."""

    subscription: SubscribedTo


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """The consumer has revoked and added partitions; `owned` are its partitions now."""

    owned: Assigned


@dataclass(frozen=True, slots=True, kw_only=True)
class LossHandled:
    """The consumer owns no partitions any more, and the listener was told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeatAnswered:
    """The outcome of a heartbeat. Without an answer, the code is NETWORK_EXCEPTION or similar."""

    token: int
    code: ErrorCode
    message: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assigned | None = None
    """The new assignment, or None if it has not changed."""


ConsumerEvent = (
    Polled
    | Ticked
    | SubscriptionChanged
    | Reconciled
    | LossHandled
    | ConsumerHeartbeatAnswered
    | CommitRefused
    | LeaveRequested
)

# --- effects


@dataclass(frozen=True, slots=True, kw_only=True)
class SendConsumerHeartbeat:
    """Send a ConsumerGroupHeartbeat. A field that is None has not changed, so the heartbeat leaves it out."""

    token: int
    member_epoch: int
    is_full: bool
    """True if the heartbeat also has the rebalance timeout, the assignor and the rack."""
    subscription: SubscribedTo | None
    owned: Assigned | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendConsumerLeave:
    member_epoch: int
    """Either `LEAVE_EPOCH` or `STATIC_LEAVE_EPOCH`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakePartitions:
    """The member's new target assignment, which the next polls reconcile."""

    assignment: Assigned


ConsumerEffect = SendConsumerHeartbeat | SendConsumerLeave | TakePartitions | ForgetCoordinator | WakePoll | Fail
ConsumerEffects = list[ConsumerEffect]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMembershipConfig:
    """The settings of a member, under the names of the consumer's settings."""

    group_instance_id: str | None
    max_poll_interval_ms: int
    backoff: Backoff


class ConsumerMembership:
    """The state machine of one member of one group. The member chooses its id, and keeps it until it is closed."""

    def __init__(self, config: ConsumerMembershipConfig, member_id: str, rng: random.Random) -> None:
        self.state = ConsumerMemberState.UNJOINED
        self.member_id = member_id
        self._config = config
        self._rng = rng
        self._epoch = JOIN_EPOCH
        self._subscription = NOTHING
        self._owned: Assigned = {}
        self._sent: tuple[SubscribedTo, Assigned] | None = None
        """The fields of the last answered heartbeat. None means that the next heartbeat must have all fields."""
        self._sending: tuple[SubscribedTo, Assigned] = (NOTHING, {})
        self._token = 0
        self._is_under_way = False
        self._heartbeat_at_ms = 0
        self._failures = 0
        self._polled_at_ms = 0

    @property
    def identity(self) -> Identity:
        """The identity to commit with. Outside the group it has no generation."""
        return Identity(self._epoch if self._epoch > JOIN_EPOCH else NO_GENERATION, self.member_id)

    @property
    def due(self) -> bool:
        """True while the next poll has to join or to report a loss."""
        return self.state in (ConsumerMemberState.UNJOINED, ConsumerMemberState.LOST)

    def step(self, event: ConsumerEvent, now_ms: int) -> ConsumerEffects:
        """Applies an event. Returns the effects that the caller has to carry out."""
        match event:
            case Polled():
                return self._on_polled(now_ms)
            case Ticked():
                return self._on_ticked(now_ms)
            case SubscriptionChanged():
                self._subscription = event.subscription
                return self._send_if_changed(now_ms)
            case Reconciled():
                self._owned = event.owned
                return self._send_if_changed(now_ms)
            case LossHandled():
                return self._on_loss_handled(now_ms)
            case ConsumerHeartbeatAnswered():
                return self._on_answered(event, now_ms) if event.token == self._token else []
            case CommitRefused():
                return self._on_commit_refused(event)
            case LeaveRequested():
                return self._on_leave_requested(event)
            case _:
                assert_never(event)

    def note_poll(self, now_ms: int) -> None:
        """Notes the time of a poll. It does the same as the event `Polled` without other work, at less cost."""
        self._polled_at_ms = now_ms

    def next_deadline_ms(self) -> int | None:
        """Returns the time of the next step with Ticked, or None if the membership waits for no time."""
        if not self._is_in:
            return None
        polls_end_ms = self._polled_at_ms + self._config.max_poll_interval_ms
        return polls_end_ms if self._is_under_way else min(polls_end_ms, self._heartbeat_at_ms)

    # --- handlers, in the order of the events

    def _on_polled(self, now_ms: int) -> ConsumerEffects:
        self._polled_at_ms = now_ms
        if self.state is not ConsumerMemberState.UNJOINED or self._subscription == NOTHING:
            return []
        self.state = ConsumerMemberState.JOINING
        self._heartbeat_at_ms = now_ms
        return self._tick_heartbeat(now_ms)

    def _on_ticked(self, now_ms: int) -> ConsumerEffects:
        if not self._is_in:
            return []
        if now_ms >= self._polled_at_ms + self._config.max_poll_interval_ms:
            # A static member's partitions wait for it until its session times out (KIP-345).
            effects = self._leave_effects(static=False)
            return [*effects, *self._lose()]
        return self._tick_heartbeat(now_ms)

    def _on_loss_handled(self, now_ms: int) -> ConsumerEffects:
        if self.state is not ConsumerMemberState.LOST:
            return []
        self._owned = {}
        self.state = ConsumerMemberState.UNJOINED
        return self._on_polled(now_ms)

    def _on_answered(self, event: ConsumerHeartbeatAnswered, now_ms: int) -> ConsumerEffects:
        self._is_under_way = False
        code = event.code
        if code is ErrorCode.NONE:
            return self._on_heartbeat_answer(event, now_ms)
        self._sent = None
        if code in _EXPELLED:
            return self._lose()
        if code in _COORDINATOR_GONE or code.retriable:
            self._failures += 1
            self._heartbeat_at_ms = now_ms + round(self._config.backoff.delay_ms(self._failures, self._rng))
            return [ForgetCoordinator()] if code in _COORDINATOR_GONE else []
        return self._refuse(code, event.message)

    def _on_heartbeat_answer(self, event: ConsumerHeartbeatAnswered, now_ms: int) -> ConsumerEffects:
        self.state = ConsumerMemberState.MEMBER
        self._epoch = event.member_epoch
        self._failures = 0
        self._sent = self._sending
        self._heartbeat_at_ms = now_ms + event.heartbeat_interval_ms
        effects: ConsumerEffects = []
        if event.assignment is not None:
            effects = [TakePartitions(assignment=event.assignment), WakePoll()]
        return [*effects, *self._send_if_changed(now_ms)]

    def _on_commit_refused(self, event: CommitRefused) -> ConsumerEffects:
        """Ends the membership if the coordinator has expelled the member. Ignores a stale epoch, because the
        heartbeat's answer brings the new one."""
        if event.identity != self.identity or self.state is not ConsumerMemberState.MEMBER:
            return []
        return self._lose() if event.code in _EXPELLED else []

    def _on_leave_requested(self, event: LeaveRequested) -> ConsumerEffects:
        effects = self._leave_effects(static=event.static)
        if self.state is not ConsumerMemberState.FENCED:
            self._end(ConsumerMemberState.UNJOINED)
            self._owned = {}
            self._subscription = NOTHING
        return effects

    # --- helpers

    @property
    def _is_in(self) -> bool:
        return self.state in (ConsumerMemberState.JOINING, ConsumerMemberState.MEMBER)

    def _send_if_changed(self, now_ms: int) -> ConsumerEffects:
        """Sends a heartbeat at once if a field has changed. If a heartbeat is under way, waits for its answer first."""
        if not self._is_in or self._sent == (self._subscription, self._owned):
            return []
        if self._sent is not None:
            self._heartbeat_at_ms = now_ms
        return self._tick_heartbeat(now_ms)

    def _tick_heartbeat(self, now_ms: int) -> ConsumerEffects:
        if self._is_under_way or now_ms < self._heartbeat_at_ms:
            return []
        self._is_under_way = True
        self._token += 1
        self._sending = (self._subscription, self._owned)
        sent_subscription, sent_owned = self._sent or (None, None)
        return [
            SendConsumerHeartbeat(
                token=self._token,
                member_epoch=self._epoch,
                is_full=self._sent is None,
                subscription=None if self._subscription == sent_subscription else self._subscription,
                owned=None if self._owned == sent_owned else self._owned,
            )
        ]

    def _leave_effects(self, *, static: bool) -> ConsumerEffects:
        """Returns the request that leaves the group. With `static`, a static member loses its place too."""
        if not self._is_in:
            return []
        is_back_soon = self._config.group_instance_id is not None and not static
        return [SendConsumerLeave(member_epoch=STATIC_LEAVE_EPOCH if is_back_soon else LEAVE_EPOCH)]

    def _lose(self) -> ConsumerEffects:
        self._end(ConsumerMemberState.LOST)
        return [WakePoll()]

    def _refuse(self, code: ErrorCode, message: str) -> ConsumerEffects:
        """Ends the membership because the group refused this member. The poll raises the error, and the next poll tries
        again."""
        is_for_ever = code is ErrorCode.FENCED_INSTANCE_ID
        self._end(ConsumerMemberState.FENCED if is_for_ever else ConsumerMemberState.LOST)
        return [Fail(error=code.exception(message)), WakePoll()]

    def _end(self, state: ConsumerMemberState) -> None:
        self._token += 1
        self._is_under_way = False
        self._sent = None
        self._epoch = JOIN_EPOCH
        self._failures = 0
        self.state = state
