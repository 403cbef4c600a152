"""A member's side of Kafka's classic group protocol, as a state machine without I/O.

    UNJOINED   not a member, or one that has to begin anew
    PREPARING  about to join: the consumer commits and gives up partitions, calling the user's listener
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

A join begins only within a poll, because it calls user code; from JOINING on all goes on by itself. Members
heartbeat from ASSIGNING to the next JOINING. Answers carry the token of their request; what is late is ignored.

`step(event, now_ms)` returns what to do; `next_deadline_ms()` says when to step with `Ticked`. Follows
`org.apache.kafka.clients.consumer.internals.AbstractCoordinator` (KIP-62, KIP-345, KIP-394, KIP-800, KIP-814).
"""

from __future__ import annotations

import enum
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from klamm.consumer.identity import NO_GENERATION, Identity
from klamm.consumer.membership_events import (
    AssignmentComputed,
    AssignmentFailed,
    CommitRefused,
    ComputeAssignment,
    Effects,
    Event,
    Fail,
    ForgetCoordinator,
    HeartbeatAnswered,
    JoinAnswered,
    JoinPrepared,
    LeaveRequested,
    Polled,
    PrepareJoin,
    RejoinRequested,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    SyncAnswered,
    TakeAssignment,
    Ticked,
    WakePoll,
)
from klamm.errors import ErrorCode
from klamm.retry import Backoff


class MemberState(enum.Enum):
    """The table is in the module's docstring."""

    UNJOINED = "unjoined"
    PREPARING = "preparing"
    JOINING = "joining"
    ASSIGNING = "assigning"
    SYNCING = "syncing"
    STABLE = "stable"
    FENCED = "fenced"


_TRANSITIONS: dict[MemberState, tuple[MemberState, ...]] = {
    MemberState.UNJOINED: (MemberState.PREPARING,),
    MemberState.PREPARING: (MemberState.JOINING,),
    MemberState.JOINING: (MemberState.ASSIGNING, MemberState.SYNCING),
    MemberState.ASSIGNING: (MemberState.SYNCING,),
    MemberState.SYNCING: (MemberState.STABLE, MemberState.JOINING),
    MemberState.STABLE: (MemberState.PREPARING,),
    MemberState.FENCED: (),
}
_HEARTBEATING = (MemberState.PREPARING, MemberState.ASSIGNING, MemberState.SYNCING, MemberState.STABLE)
_COORDINATOR_GONE = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
)
_EXPELLED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipConfig:
    """The settings of the same names."""

    group_instance_id: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    """Also the rebalance timeout: how long the group waits for this member."""
    backoff: Backoff


class Membership:
    """One member of one group.

    Invariants: STABLE and SYNCING have a generation and a member id; `due` holds for UNJOINED."""

    def __init__(self, config: MembershipConfig, rng: random.Random) -> None:
        self.state = MemberState.UNJOINED
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
        self._heartbeat_at_ms = 0
        """When the next one is due."""
        self._heard_at_ms = 0
        """When the coordinator last answered well."""
        self._heartbeat_under_way = False

    @property
    def due(self) -> bool:
        """Whether the next poll begins a rebalance."""
        return self.state in (MemberState.UNJOINED, MemberState.PREPARING) or (
            self.state is MemberState.STABLE and self._rejoin_reason is not None
        )

    @property
    def rebalancing(self) -> bool:
        """Between the join and its assignment: commits have to wait."""
        return self.state in (MemberState.JOINING, MemberState.ASSIGNING, MemberState.SYNCING)

    def step(self, event: Event, now_ms: int) -> Effects:
        """Takes in what happened; returns what to do about it."""
        match event:
            case Polled():
                return self._on_polled(now_ms)
            case Ticked():
                return self._on_ticked(now_ms)
            case JoinPrepared():
                return self._on_join_prepared(event)
            case JoinAnswered():
                return self._on_join_answered(event, now_ms) if self._take(event.token) else []
            case AssignmentComputed():
                return self._on_assignment_computed(event) if self._take(event.token) else []
            case AssignmentFailed():
                return self._refuse(event.error) if self._take(event.token) else []
            case SyncAnswered():
                return self._on_sync_answered(event, now_ms) if self._take(event.token) else []
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
        """What `Polled` does when no rebalance is due, for polls that must cost nothing."""
        self._polled_at_ms = now_ms

    def next_deadline_ms(self) -> int | None:
        """When to step with Ticked at the latest; None: not before another event."""
        deadlines = []
        if self.state is not MemberState.UNJOINED and self.state is not MemberState.FENCED:
            deadlines.append(self._polled_at_ms + self._config.max_poll_interval_ms)
        if self._retry_at_ms is not None:
            deadlines.append(self._retry_at_ms)
        if self._heartbeats:
            deadlines.append(self._heard_at_ms + self._config.session_timeout_ms)
            if not self._heartbeat_under_way:
                deadlines.append(self._heartbeat_at_ms)
        return min(deadlines, default=None)

    def check_invariants(self) -> None:
        """Raises AssertionError with what is wrong."""
        named = self.identity.generation_id >= 0 and self.identity.member_id != ""
        settled = (MemberState.ASSIGNING, MemberState.SYNCING, MemberState.STABLE)
        assert named or self.state not in settled, f"{self.state.value} as {self.identity}"
        assert self._retry_at_ms is None or self.state is MemberState.JOINING, f"retries in {self.state.value}"
        assert self.state is not MemberState.UNJOINED or self.identity.generation_id < 0, f"{self.identity}"

    # --- handlers, in the order of the events

    def _on_polled(self, now_ms: int) -> Effects:
        self._polled_at_ms = now_ms
        if not self.due:
            return []
        if self.state is not MemberState.PREPARING:
            self._transition_to(MemberState.PREPARING)
        return [PrepareJoin(lost=self._lost)]

    def _on_ticked(self, now_ms: int) -> Effects:
        if self.state in (MemberState.UNJOINED, MemberState.FENCED):
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
            effects += self._tick_heartbeat(now_ms)
        return effects

    def _on_join_prepared(self, event: JoinPrepared) -> Effects:
        if self.state is not MemberState.PREPARING:
            return []  # Expelled while the listener ran: the next poll prepares again, for what is lost.
        self._protocols = event.protocols
        self._lost = False
        self._transition_to(MemberState.JOINING)
        return [self._send_join()]

    def _on_join_answered(self, event: JoinAnswered, now_ms: int) -> Effects:
        assert self.state is MemberState.JOINING, f"joined in {self.state.value}"
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

    def _joined(self, event: JoinAnswered, now_ms: int) -> Effects:
        self.identity = Identity(event.generation_id, event.member_id)
        self._protocol_name = event.protocol_name
        self._failures = 0
        self._rejoin_reason = None
        self._heartbeat_under_way = False
        self._heard_at_ms = now_ms
        self._heartbeat_at_ms = now_ms + self._config.heartbeat_interval_ms
        if event.leader == event.member_id and not event.skip_assignment:
            self._transition_to(MemberState.ASSIGNING)
            return [ComputeAssignment(token=self._token, protocol_name=event.protocol_name, members=event.members)]
        return [self._send_sync({})]

    def _on_assignment_computed(self, event: AssignmentComputed) -> Effects:
        return [self._send_sync(event.assignments)]

    def _on_sync_answered(self, event: SyncAnswered, now_ms: int) -> Effects:
        assert self.state is MemberState.SYNCING, f"synced in {self.state.value}"
        code = event.code
        if code is ErrorCode.NONE:
            self._transition_to(MemberState.STABLE)
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
            self._transition_to(MemberState.JOINING)
            return [self._send_join()]
        if code.retriable or code in _COORDINATOR_GONE:
            self._transition_to(MemberState.JOINING)
            forget = [ForgetCoordinator()] if code in _COORDINATOR_GONE else []
            return [*forget, *self._retry_join(now_ms)]
        return self._refuse_code(code, event.message)

    def _on_heartbeat_answered(self, event: HeartbeatAnswered, now_ms: int) -> Effects:
        self._heartbeat_under_way = False
        if event.identity != self.identity or not self._heartbeats:
            return []
        code = event.code
        if code is ErrorCode.NONE or code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._heard_at_ms = now_ms
            self._failures = 0
            return self._on_membership_code(code, event.message)
        if code in _COORDINATOR_GONE or code.retriable:
            self._heartbeat_at_ms = now_ms + self._delay_ms()
            return [ForgetCoordinator()] if code in _COORDINATOR_GONE else []
        return self._on_membership_code(code, event.message)

    def _on_commit_refused(self, event: CommitRefused) -> Effects:
        if event.identity != self.identity:
            return []
        return self._on_membership_code(event.code, event.message)

    def _on_membership_code(self, code: ErrorCode, message: str) -> Effects:
        if code is ErrorCode.NONE:
            return []
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            # From SYNCING on, SyncGroup's answer says the same.
            if self.state is MemberState.STABLE and self._rejoin_reason is None:
                self._rejoin_reason = "the group rebalances"
            return [WakePoll()]
        if code in _EXPELLED:
            self._lose(forget_member=code is ErrorCode.UNKNOWN_MEMBER_ID)
            return [WakePoll()]
        return self._refuse_code(code, message)

    def _on_leave_requested(self, event: LeaveRequested) -> Effects:
        effects = self._leave_effects(event.reason, static=event.static)
        if self.state is not MemberState.FENCED:
            self._reset(forget_member=True)
            self._lost = False
            self._rejoin_reason = "first join"
        return effects

    # --- helpers

    @property
    def _heartbeats(self) -> bool:
        return self.state in _HEARTBEATING and self.identity.generation_id >= 0

    def _take(self, token: int) -> bool:
        """Whether this is the answer waited for; it then is waited for no longer."""
        expected = token == self._token
        if expected:
            self._token += 1
        return expected

    def _tick_heartbeat(self, now_ms: int) -> Effects:
        effects: Effects = []
        if now_ms >= self._heard_at_ms + self._config.session_timeout_ms:
            # The coordinator may long have expelled us, or be another by now: ask who it is.
            self._heard_at_ms = now_ms
            self._heartbeat_under_way = False
            effects.append(ForgetCoordinator())
        if now_ms >= self._heartbeat_at_ms and not self._heartbeat_under_way:
            self._heartbeat_at_ms = now_ms + self._config.heartbeat_interval_ms
            self._heartbeat_under_way = True
            effects.append(SendHeartbeat(identity=self.identity))
        return effects

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
        self._transition_to(MemberState.SYNCING)
        return SendSync(
            token=self._token,
            identity=self.identity,
            protocol_name=self._protocol_name,
            assignments=assignments,
        )

    def _retry_join(self, now_ms: int) -> Effects:
        self._retry_at_ms = now_ms + self._delay_ms()
        return []

    def _delay_ms(self) -> int:
        self._failures += 1
        return round(self._config.backoff.delay_ms(self._failures, self._rng))

    def _leave_effects(self, reason: str, *, static: bool) -> Effects:
        if not self.identity.member_id or self.state is MemberState.FENCED:
            return []
        if self._config.group_instance_id is not None and not static:
            return []
        return [SendLeave(member_id=self.identity.member_id, reason=reason)]

    def _refuse_code(self, code: ErrorCode, message: str) -> Effects:
        if code is not ErrorCode.FENCED_INSTANCE_ID:
            return self._refuse(code.exception(message))
        self._reset(forget_member=True)
        self.state = MemberState.FENCED
        return [Fail(error=code.exception(message)), WakePoll()]

    def _refuse(self, error: Exception) -> Effects:
        """The group does not want us as we are; the user hears of it and the next poll tries again."""
        lost = self.identity.generation_id >= 0
        self._reset(forget_member=False)
        self._lost = self._lost or lost
        return [Fail(error=error), WakePoll()]

    def _lose(self, *, forget_member: bool) -> None:
        """The membership ended without our doing."""
        self._reset(forget_member=forget_member)
        self._lost = True
        self._rejoin_reason = "the membership was lost"

    def _reset(self, *, forget_member: bool) -> None:
        self._token += 1
        self._retry_at_ms = None
        self._heartbeat_under_way = False
        self.identity = Identity(NO_GENERATION, "" if forget_member else self.identity.member_id)
        self.state = MemberState.UNJOINED

    def _transition_to(self, state: MemberState) -> None:
        assert state in _TRANSITIONS[self.state], f"{self.state.value} -> {state.value}"
        self.state = state
