"""A member's side of Kafka's classic group protocol, as a state machine without I/O.

    UNJOINED   not a member, or one that has to join again
    PREPARING  about to join: the consumer commits, calls the user's listener and releases partitions
    JOINING    JoinGroup is under way, or waits to be tried again
    ASSIGNING  joined as the leader: the assignments are being computed
    SYNCING    SyncGroup is under way
    STABLE     has an assignment
    FENCED     another process took over this group.instance.id: for ever

    UNJOINED  -> PREPARING (a poll)
    PREPARING -> JOINING (prepared)
    JOINING   -> ASSIGNING (leader) | SYNCING (follower)
    ASSIGNING -> SYNCING (computed)
    SYNCING   -> STABLE (assignment) | JOINING (the group rebalances again)
    STABLE    -> PREPARING (a poll, when a rebalance is due)
    any       -> UNJOINED (left, expelled, polls too far apart, refused) | FENCED

A join begins only within a poll, because it calls user code. From JOINING on, no step needs a poll. Members send
heartbeats from ASSIGNING to the next JOINING. Answers carry the token of their request, and late answers are ignored.

`step(event, now_ms)` returns what to do; `next_deadline_ms()` says when to step with `Ticked`. Follows
`org.apache.kafka.clients.consumer.internals.AbstractCoordinator` (KIP-62, KIP-345, KIP-394, KIP-800, KIP-814).
"""

from __future__ import annotations

import enum
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from klamm.consumer.classic.heartbeat_timer import HeartbeatTimer
from klamm.consumer.classic.membership_events import (
    AssignmentComputed,
    AssignmentFailed,
    ClassicEffects,
    ClassicEvent,
    ComputeAssignment,
    HeartbeatAnswered,
    JoinAnswered,
    JoinPrepared,
    PrepareJoin,
    RejoinRequested,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    SyncAnswered,
    TakeAssignment,
)
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
from klamm.retry import Backoff


class ClassicMemberState(enum.Enum):
    """The states of a member. The module's docstring has the table."""

    UNJOINED = "unjoined"
    PREPARING = "preparing"
    JOINING = "joining"
    ASSIGNING = "assigning"
    SYNCING = "syncing"
    STABLE = "stable"
    FENCED = "fenced"


_TRANSITIONS: dict[ClassicMemberState, tuple[ClassicMemberState, ...]] = {
    ClassicMemberState.UNJOINED: (ClassicMemberState.PREPARING,),
    ClassicMemberState.PREPARING: (ClassicMemberState.JOINING,),
    ClassicMemberState.JOINING: (ClassicMemberState.ASSIGNING, ClassicMemberState.SYNCING),
    ClassicMemberState.ASSIGNING: (ClassicMemberState.SYNCING,),
    ClassicMemberState.SYNCING: (ClassicMemberState.STABLE, ClassicMemberState.JOINING),
    ClassicMemberState.STABLE: (ClassicMemberState.PREPARING,),
    ClassicMemberState.FENCED: (),
}
_HEARTBEATING = (
    ClassicMemberState.PREPARING,
    ClassicMemberState.ASSIGNING,
    ClassicMemberState.SYNCING,
    ClassicMemberState.STABLE,
)
_COORDINATOR_GONE = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
)
_EXPELLED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMembershipConfig:
    """The settings of a classic member, under the names of the consumer's settings."""

    group_instance_id: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    """The longest time between polls. It is also the rebalance timeout: how long the group waits for this member."""
    backoff: Backoff


class ClassicMembership:
    """The state machine of one member of one group.

    Invariants: a member in ASSIGNING, SYNCING or STABLE has a generation and a member id. `due` holds for UNJOINED."""

    def __init__(self, config: ClassicMembershipConfig, rng: random.Random) -> None:
        self.state = ClassicMemberState.UNJOINED
        self.identity = Identity(NO_GENERATION, "")
        self._config = config
        self._rng = rng
        self._token = 0
        self._rejoin_reason: str | None = "first join"
        self._lost = False
        self._protocols: tuple[tuple[str, bytes], ...] = ()
        self._protocol_name = ""
        self._failures = 0
        self._retry_at_ms: int | None = None
        self._polled_at_ms = 0
        self._heartbeat = HeartbeatTimer(
            interval_ms=config.heartbeat_interval_ms, session_timeout_ms=config.session_timeout_ms
        )

    @property
    def due(self) -> bool:
        """True while the next poll has to begin a rebalance."""
        return self.state in (ClassicMemberState.UNJOINED, ClassicMemberState.PREPARING) or (
            self.state is ClassicMemberState.STABLE and self._rejoin_reason is not None
        )

    @property
    def rebalancing(self) -> bool:
        """True from the join until the assignment arrives. Commits have to wait in that time."""
        return self.state in (ClassicMemberState.JOINING, ClassicMemberState.ASSIGNING, ClassicMemberState.SYNCING)

    def step(self, event: ClassicEvent, now_ms: int) -> ClassicEffects:
        """Applies an event. Returns the effects that the caller has to carry out."""
        match event:
            case Polled():
                return self._on_polled(now_ms)
            case Ticked():
                return self._on_ticked(now_ms)
            case JoinPrepared():
                return self._on_join_prepared(event)
            case JoinAnswered():
                return self._on_join_answered(event, now_ms) if self._accept(event.token) else []
            case AssignmentComputed():
                return self._on_assignment_computed(event) if self._accept(event.token) else []
            case AssignmentFailed():
                return self._refuse(event.error) if self._accept(event.token) else []
            case SyncAnswered():
                return self._on_sync_answered(event, now_ms) if self._accept(event.token) else []
            case HeartbeatAnswered():
                return self._on_heartbeat_answered(event, now_ms)
            case CommitRefused():
                return self._on_commit_refused(event)
            case RejoinRequested():
                self._rejoin_reason = event.reason
                return [WakePoll()]
            case LeaveRequested():
                return self._on_leave_requested(event)
            case _:
                assert_never(event)

    def note_poll(self, now_ms: int) -> None:
        """Notes the time of a poll when no rebalance is due. It does the same as the event `Polled` then, at less
        cost.
        """
        self._polled_at_ms = now_ms

    def next_deadline_ms(self) -> int | None:
        """Returns the time of the next step with Ticked, or None if the membership waits for no time."""
        deadlines = []
        if self.state is not ClassicMemberState.UNJOINED and self.state is not ClassicMemberState.FENCED:
            deadlines.append(self._polled_at_ms + self._config.max_poll_interval_ms)
        if self._retry_at_ms is not None:
            deadlines.append(self._retry_at_ms)
        if self._heartbeats:
            deadlines.append(self._heartbeat.next_deadline_ms())
        return min(deadlines, default=None)

    def check_invariants(self) -> None:
        """Raises AssertionError if an invariant does not hold."""
        named = self.identity.generation_id >= 0 and self.identity.member_id != ""
        settled = (ClassicMemberState.ASSIGNING, ClassicMemberState.SYNCING, ClassicMemberState.STABLE)
        assert named or self.state not in settled, f"{self.state.value} as {self.identity}"
        assert self._retry_at_ms is None or self.state is ClassicMemberState.JOINING, f"retries in {self.state.value}"
        assert self.state is not ClassicMemberState.UNJOINED or self.identity.generation_id < 0, f"{self.identity}"

    # --- handlers, in the order of the events

    def _on_polled(self, now_ms: int) -> ClassicEffects:
        self._polled_at_ms = now_ms
        if not self.due:
            return []
        if self.state is not ClassicMemberState.PREPARING:
            self._transition_to(ClassicMemberState.PREPARING)
        return [PrepareJoin(lost=self._lost)]

    def _on_ticked(self, now_ms: int) -> ClassicEffects:
        if self.state in (ClassicMemberState.UNJOINED, ClassicMemberState.FENCED):
            return []
        if now_ms >= self._polled_at_ms + self._config.max_poll_interval_ms:
            # Static members do not leave here: their partitions wait for them for session.timeout.ms (KIP-345).
            effects = self._leave_effects(f"no poll for {self._config.max_poll_interval_ms} ms", static=False)
            self._lose(forget_member=True)
            return [*effects, WakePoll()]
        effects = []
        if self._retry_at_ms is not None and now_ms >= self._retry_at_ms:
            effects.append(self._send_join())
        if self._heartbeats:
            if self._heartbeat.take_expiry(now_ms):
                effects.append(ForgetCoordinator())
            if self._heartbeat.take_due(now_ms):
                effects.append(SendHeartbeat(identity=self.identity))
        return effects

    def _on_join_prepared(self, event: JoinPrepared) -> ClassicEffects:
        if self.state is not ClassicMemberState.PREPARING:
            # The member was expelled while the listener ran. The next poll reports the loss and prepares again.
            return []
        self._protocols = event.protocols
        self._lost = False
        self._transition_to(ClassicMemberState.JOINING)
        return [self._send_join()]

    def _on_join_answered(self, event: JoinAnswered, now_ms: int) -> ClassicEffects:
        assert self.state is ClassicMemberState.JOINING, f"joined in {self.state.value}"
        code = event.code
        if code is ErrorCode.NONE:
            return self._joined(event, now_ms)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.identity = Identity(self.identity.generation_id, event.member_id)
            return [self._send_join()]
        if code in _EXPELLED:
            self._lose(forget_member=True)
            return [WakePoll()]
        if code in _COORDINATOR_GONE:
            return [ForgetCoordinator(), *self._retry_join(now_ms)]
        if code.retriable or code is ErrorCode.REBALANCE_IN_PROGRESS:
            return self._retry_join(now_ms)
        return self._refuse_code(code, event.message)

    def _joined(self, event: JoinAnswered, now_ms: int) -> ClassicEffects:
        self.identity = Identity(event.generation_id, event.member_id)
        self._protocol_name = event.protocol_name
        self._failures = 0
        self._rejoin_reason = None
        self._heartbeat.begin(now_ms)
        if event.leader == event.member_id and not event.skip_assignment:
            self._transition_to(ClassicMemberState.ASSIGNING)
            return [ComputeAssignment(token=self._token, protocol_name=event.protocol_name, members=event.members)]
        return [self._send_sync({})]

    def _on_assignment_computed(self, event: AssignmentComputed) -> ClassicEffects:
        return [self._send_sync(event.assignments)]

    def _on_sync_answered(self, event: SyncAnswered, now_ms: int) -> ClassicEffects:
        assert self.state is ClassicMemberState.SYNCING, f"synced in {self.state.value}"
        code = event.code
        if code is ErrorCode.NONE:
            self._transition_to(ClassicMemberState.STABLE)
            return [
                TakeAssignment(
                    generation_id=self.identity.generation_id,
                    protocol_name=self._protocol_name,
                    assignment=event.assignment,
                ),
                WakePoll(),
            ]
        if code in _EXPELLED:
            self._lose(forget_member=code is ErrorCode.UNKNOWN_MEMBER_ID)
            return [WakePoll()]
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._transition_to(ClassicMemberState.JOINING)
            return [self._send_join()]
        if code.retriable or code in _COORDINATOR_GONE:
            self._transition_to(ClassicMemberState.JOINING)
            forget = [ForgetCoordinator()] if code in _COORDINATOR_GONE else []
            return [*forget, *self._retry_join(now_ms)]
        return self._refuse_code(code, event.message)

    def _on_heartbeat_answered(self, event: HeartbeatAnswered, now_ms: int) -> ClassicEffects:
        self._heartbeat.reset()
        if event.identity != self.identity or not self._heartbeats:
            return []
        code = event.code
        if code is ErrorCode.NONE or code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._heartbeat.on_answer(now_ms)
            self._failures = 0
            return self._on_membership_code(code, event.message)
        if code in _COORDINATOR_GONE or code.retriable:
            self._heartbeat.retry_at(now_ms + self._delay_ms())
            return [ForgetCoordinator()] if code in _COORDINATOR_GONE else []
        return self._on_membership_code(code, event.message)

    def _on_commit_refused(self, event: CommitRefused) -> ClassicEffects:
        if event.identity != self.identity:
            return []
        return self._on_membership_code(event.code, event.message)

    def _on_membership_code(self, code: ErrorCode, message: str) -> ClassicEffects:
        if code is ErrorCode.NONE:
            return []
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            # From SYNCING on, the answer to SyncGroup reports the rebalance too.
            if self.state is ClassicMemberState.STABLE and self._rejoin_reason is None:
                self._rejoin_reason = "the group rebalances"
            return [WakePoll()]
        if code in _EXPELLED:
            self._lose(forget_member=code is ErrorCode.UNKNOWN_MEMBER_ID)
            return [WakePoll()]
        return self._refuse_code(code, message)

    def _on_leave_requested(self, event: LeaveRequested) -> ClassicEffects:
        effects = self._leave_effects(event.reason, static=event.static)
        if self.state is not ClassicMemberState.FENCED:
            self._reset(forget_member=True)
            self._lost = False
            self._rejoin_reason = "first join"
        return effects

    # --- helpers

    @property
    def _heartbeats(self) -> bool:
        return self.state in _HEARTBEATING and self.identity.generation_id >= 0

    def _accept(self, token: int) -> bool:
        """Returns whether this is the expected answer. A second answer with the same token is not accepted."""
        expected = token == self._token
        if expected:
            self._token += 1
        return expected

    def _send_join(self) -> SendJoin:
        self._token += 1
        self._retry_at_ms = None
        return SendJoin(
            token=self._token,
            member_id=self.identity.member_id,
            protocols=self._protocols,
            reason=self._rejoin_reason or "rebalance",
        )

    def _send_sync(self, assignments: Mapping[str, bytes]) -> SendSync:
        self._transition_to(ClassicMemberState.SYNCING)
        return SendSync(
            token=self._token,
            identity=self.identity,
            protocol_name=self._protocol_name,
            assignments=assignments,
        )

    def _retry_join(self, now_ms: int) -> ClassicEffects:
        self._retry_at_ms = now_ms + self._delay_ms()
        return []

    def _delay_ms(self) -> int:
        self._failures += 1
        return round(self._config.backoff.delay_ms(self._failures, self._rng))

    def _leave_effects(self, reason: str, *, static: bool) -> ClassicEffects:
        if not self.identity.member_id or self.state is ClassicMemberState.FENCED:
            return []
        if self._config.group_instance_id is not None and not static:
            return []
        return [SendLeave(member_id=self.identity.member_id, reason=reason)]

    def _refuse_code(self, code: ErrorCode, message: str) -> ClassicEffects:
        if code is not ErrorCode.FENCED_INSTANCE_ID:
            return self._refuse(code.exception(message))
        self._reset(forget_member=True)
        self.state = ClassicMemberState.FENCED
        return [Fail(error=code.exception(message)), WakePoll()]

    def _refuse(self, error: Exception) -> ClassicEffects:
        """Ends the membership because the group refused this member. The poll raises the error, and the next poll tries
        again."""
        lost = self.identity.generation_id >= 0
        self._reset(forget_member=False)
        self._lost = self._lost or lost
        return [Fail(error=error), WakePoll()]

    def _lose(self, *, forget_member: bool) -> None:
        """Ends the membership after the group expelled this member, or after polls were too far apart. The next poll
        reports the partitions as lost."""
        self._reset(forget_member=forget_member)
        self._lost = True
        self._rejoin_reason = "the membership was lost"

    def _reset(self, *, forget_member: bool) -> None:
        self._token += 1
        self._retry_at_ms = None
        self._heartbeat.reset()
        self.identity = Identity(NO_GENERATION, "" if forget_member else self.identity.member_id)
        self.state = ClassicMemberState.UNJOINED

    def _transition_to(self, state: ClassicMemberState) -> None:
        assert state in _TRANSITIONS[self.state], f"{self.state.value} -> {state.value}"
        self.state = state
