"""Tests the member's side of the group protocol, event by event."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.consumer.classic.membership import ClassicMembership, ClassicMembershipConfig, ClassicMemberState
from klamm.consumer.classic.membership_events import (
    AssignmentComputed,
    AssignmentFailed,
    ClassicEffects,
    ClassicEvent,
    ComputeAssignment,
    HeartbeatAnswered,
    JoinAnswered,
    JoinGroupMember,
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
from klamm.consumer.group.identity import Identity
from klamm.consumer.group.membership_events import (
    CommitRefused,
    Fail,
    ForgetCoordinator,
    LeaveRequested,
    Polled,
    Ticked,
    WakePoll,
)
from klamm.errors import ErrorCode, FencedInstanceIdError, InconsistentGroupProtocolError
from klamm.retry import Backoff

PROTOCOLS = (("range", b"metadata"),)
SESSION_MS = 10_000
HEARTBEAT_MS = 3_000
POLL_MS = 60_000
BACKOFF_MS = 100


class Group:
    """A ClassicMembership on a clock of the test. Checks the invariants after every step."""

    def __init__(self, instance_id: str | None = None) -> None:
        self.now_ms = 1_000_000
        self.membership = ClassicMembership(
            ClassicMembershipConfig(
                group_instance_id=instance_id,
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=HEARTBEAT_MS,
                max_poll_interval_ms=POLL_MS,
                backoff=Backoff(initial_ms=BACKOFF_MS, max_ms=BACKOFF_MS, jitter=0.0),
            ),
            random.Random(1),
        )

    @property
    def state(self) -> ClassicMemberState:
        return self.membership.state

    def step(self, event: ClassicEvent) -> ClassicEffects:
        effects = self.membership.step(event, self.now_ms)
        self.membership.check_invariants()
        return effects

    def one(self, event: ClassicEvent, kind: type):
        """Steps with the event. Returns its only effect of that kind."""
        (effect,) = [effect for effect in self.step(event) if isinstance(effect, kind)]
        return effect

    def tick(self, after_ms: int) -> ClassicEffects:
        self.now_ms += after_ms
        return self.step(Ticked())

    def join_sent(self) -> SendJoin:
        self.one(Polled(), PrepareJoin)
        return self.one(JoinPrepared(protocols=PROTOCOLS), SendJoin)

    def answer_join(self, join: SendJoin, *, leader: str = "other", generation_id: int = 1, **more) -> ClassicEffects:
        return self.step(
            JoinAnswered(
                token=join.token,
                code=ErrorCode.NONE,
                generation_id=generation_id,
                protocol_name="range",
                leader=leader,
                member_id="me",
                **more,
            )
        )

    def stable(self, generation_id: int = 1) -> None:
        (sync,) = self.answer_join(self.join_sent(), generation_id=generation_id)
        self.step(SyncAnswered(token=sync.token, code=ErrorCode.NONE, assignment=b"mine"))
        assert self.state is ClassicMemberState.STABLE

    def heartbeat(self, code: ErrorCode = ErrorCode.NONE) -> ClassicEffects:
        self.now_ms += HEARTBEAT_MS
        beat = self.one(Ticked(), SendHeartbeat)
        return self.step(HeartbeatAnswered(identity=beat.identity, code=code))


def test_nothing_happens_before_the_first_poll():
    group = Group()
    assert group.membership.next_deadline_ms() is None
    assert group.tick(10 * POLL_MS) == []
    assert group.membership.due


def test_a_new_member_joins_again_with_the_member_id_that_it_received():
    group = Group()
    join = group.join_sent()
    assert join.member_id == ""
    again = group.one(JoinAnswered(token=join.token, code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me"), SendJoin)
    assert (again.member_id, again.protocols) == ("me", PROTOCOLS)


def test_a_member_that_is_not_leader_syncs_without_assignments_and_receives_its_own():
    group = Group()
    (sync,) = group.answer_join(group.join_sent(), generation_id=7)
    assert sync == SendSync(token=sync.token, identity=Identity(7, "me"), protocol_name="range", assignments={})
    effects = group.step(SyncAnswered(token=sync.token, code=ErrorCode.NONE, assignment=b"mine"))
    assert effects == [TakeAssignment(generation_id=7, protocol_name="range", assignment=b"mine"), WakePoll()]
    assert group.step(Polled()) == []


def test_the_group_leader_computes_the_assignment_of_all_members():
    group = Group()
    members = (JoinGroupMember("me", None, b"a"), JoinGroupMember("you", "static", b"b"))
    (compute,) = group.answer_join(group.join_sent(), leader="me", members=members)
    assert compute == ComputeAssignment(token=compute.token, protocol_name="range", members=members)
    sync = group.one(AssignmentComputed(token=compute.token, assignments={"me": b"1", "you": b"2"}), SendSync)
    assert sync.assignments == {"me": b"1", "you": b"2"}


def test_a_returning_static_leader_does_not_compute_a_new_assignment():
    group = Group("static")
    (sync,) = group.answer_join(group.join_sent(), leader="me", skip_assignment=True)
    assert isinstance(sync, SendSync)
    assert sync.assignments == {}


def test_an_assignor_failure_is_raised_and_the_next_poll_joins_again():
    group = Group()
    (compute,) = group.answer_join(group.join_sent(), leader="me")
    bug = ValueError("bug")
    assert group.one(AssignmentFailed(token=compute.token, error=bug), Fail).error is bug
    assert group.one(Polled(), PrepareJoin).lost


def test_polls_while_a_join_is_under_way_do_not_join_again():
    group = Group()
    join = group.join_sent()
    assert group.step(Polled()) == []
    group.answer_join(join)
    assert group.step(Polled()) == []


@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION],
)
def test_a_join_looks_up_a_lost_coordinator_again_and_retries(code):
    group = Group()
    join = group.join_sent()
    assert group.step(JoinAnswered(token=join.token, code=code)) == [ForgetCoordinator()]
    assert group.membership.next_deadline_ms() == group.now_ms + BACKOFF_MS
    (again,) = group.tick(BACKOFF_MS)
    assert isinstance(again, SendJoin)
    assert again.token != join.token


def test_a_join_is_retried_while_the_coordinator_is_loading():
    group = Group()
    join = group.join_sent()
    assert group.step(JoinAnswered(token=join.token, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)) == []
    assert isinstance(group.tick(BACKOFF_MS)[0], SendJoin)


def test_an_answer_to_a_join_that_was_cancelled_by_leaving_is_ignored():
    group = Group()
    join = group.join_sent()
    group.step(LeaveRequested(reason="bye"))
    assert group.answer_join(join) == []
    assert group.state is ClassicMemberState.UNJOINED


@pytest.mark.parametrize("code", [ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_MAX_SIZE_REACHED])
def test_a_refused_join_is_an_error_and_the_next_poll_tries_again(code):
    group = Group()
    join = group.join_sent()
    failure = group.one(JoinAnswered(token=join.token, code=code, message="why"), Fail)
    assert failure.error.code is code
    assert "why" in str(failure.error)
    assert isinstance(group.step(Polled())[0], PrepareJoin)


def test_the_error_of_a_refused_join_has_the_class_of_its_code():
    group = Group()
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    error = group.one(JoinAnswered(token=group.join_sent().token, code=code), Fail).error
    assert isinstance(error, InconsistentGroupProtocolError)


def test_a_sync_refused_by_another_rebalance_joins_again_immediately():
    group = Group()
    (sync,) = group.answer_join(group.join_sent())
    (join,) = group.step(SyncAnswered(token=sync.token, code=ErrorCode.REBALANCE_IN_PROGRESS))
    assert isinstance(join, SendJoin)
    assert join.member_id == "me"


def test_heartbeats_are_sent_by_interval_with_at_most_one_in_flight():
    group = Group()
    group.stable()
    assert group.membership.next_deadline_ms() == group.now_ms + HEARTBEAT_MS
    group.one(Polled(), WakePoll) if group.membership.due else None
    (beat,) = group.tick(HEARTBEAT_MS)
    assert beat == SendHeartbeat(identity=Identity(1, "me"))
    assert group.tick(HEARTBEAT_MS) == []
    group.step(HeartbeatAnswered(identity=beat.identity, code=ErrorCode.NONE))
    assert isinstance(group.tick(0)[0], SendHeartbeat)


def test_a_rebalance_learned_from_a_heartbeat_starts_at_the_poll_and_loses_no_partitions():
    group = Group()
    group.stable()
    assert group.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS) == [WakePoll()]
    assert group.state is ClassicMemberState.STABLE
    assert group.one(Polled(), PrepareJoin) == PrepareJoin(lost=False)
    join = group.one(JoinPrepared(protocols=PROTOCOLS), SendJoin)
    assert join.member_id == "me"


def test_the_member_heartbeats_while_the_listener_runs():
    group = Group()
    group.stable()
    group.step(RejoinRequested(reason="test"))
    group.one(Polled(), PrepareJoin)
    assert group.state is ClassicMemberState.PREPARING
    assert isinstance(group.tick(HEARTBEAT_MS)[0], SendHeartbeat)


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "me")]
)
def test_a_member_refused_by_the_coordinator_loses_its_partitions(code, member_id):
    group = Group()
    group.stable()
    assert group.heartbeat(code) == [WakePoll()]
    assert group.membership.identity == Identity(-1, member_id)
    assert group.one(Polled(), PrepareJoin).lost
    assert group.one(JoinPrepared(protocols=PROTOCOLS), SendJoin).member_id == member_id


def test_a_member_refused_during_the_listener_prepares_the_join_again_as_lost():
    group = Group()
    group.stable()
    group.step(RejoinRequested(reason="test"))
    group.one(Polled(), PrepareJoin)
    group.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert group.step(JoinPrepared(protocols=PROTOCOLS)) == []
    assert group.one(Polled(), PrepareJoin).lost


def test_a_heartbeat_answer_of_a_former_generation_is_ignored():
    group = Group()
    group.stable(generation_id=1)
    group.step(RejoinRequested(reason="test"))
    group.stable(generation_id=2)
    old = HeartbeatAnswered(identity=Identity(1, "me"), code=ErrorCode.UNKNOWN_MEMBER_ID)
    assert group.step(old) == []
    assert group.state is ClassicMemberState.STABLE


def test_a_fenced_static_member_never_joins_again():
    group = Group("static")
    group.stable()
    failure = next(effect for effect in group.heartbeat(ErrorCode.FENCED_INSTANCE_ID) if isinstance(effect, Fail))
    assert isinstance(failure.error, FencedInstanceIdError)
    assert group.state is ClassicMemberState.FENCED
    assert group.step(Polled()) == []
    assert group.tick(10 * POLL_MS) == []
    assert group.step(LeaveRequested(reason="bye")) == []


def test_a_member_that_exceeds_max_poll_interval_leaves_the_group():
    group = Group()
    group.stable()
    for _ in range(POLL_MS // HEARTBEAT_MS - 1):
        assert group.heartbeat() == []
    effects = group.tick(HEARTBEAT_MS)
    assert [type(effect) for effect in effects] == [SendLeave, WakePoll]
    assert group.membership.identity.generation_id == -1
    assert group.one(Polled(), PrepareJoin).lost


def test_note_poll_restarts_max_poll_interval_as_a_poll_does():
    group = Group()
    group.stable()
    group.now_ms += POLL_MS - 1
    group.membership.note_poll(group.now_ms)
    group.tick(POLL_MS - 1)
    assert group.state is ClassicMemberState.STABLE


def test_a_static_member_that_exceeds_max_poll_interval_sends_no_leave():
    group = Group("static")
    group.stable()
    assert group.tick(POLL_MS) == [WakePoll()]


def test_a_silent_coordinator_is_looked_up_again_after_the_session_timeout():
    group = Group()
    group.stable()
    (beat,) = group.tick(HEARTBEAT_MS)
    effects = group.tick(SESSION_MS - HEARTBEAT_MS)
    assert effects == [ForgetCoordinator(), beat]


def test_a_failed_heartbeat_is_retried_after_a_backoff():
    group = Group()
    group.stable()
    assert group.heartbeat(ErrorCode.NOT_COORDINATOR) == [ForgetCoordinator()]
    assert group.membership.next_deadline_ms() == group.now_ms + BACKOFF_MS


def test_a_commit_refused_for_a_stale_generation_loses_the_partitions():
    group = Group()
    group.stable()
    effects = group.step(CommitRefused(identity=Identity(1, "me"), code=ErrorCode.ILLEGAL_GENERATION))
    assert effects == [WakePoll()]
    assert group.one(Polled(), PrepareJoin).lost


def test_a_leave_is_sent_once_and_the_member_can_join_again():
    group = Group()
    group.stable()
    assert group.step(LeaveRequested(reason="bye")) == [SendLeave(member_id="me", reason="bye")]
    assert group.step(LeaveRequested(reason="bye")) == []
    assert group.one(Polled(), PrepareJoin) == PrepareJoin(lost=False)
    assert group.one(JoinPrepared(protocols=PROTOCOLS), SendJoin).member_id == ""


def test_a_static_member_sends_a_leave_only_if_the_request_asks_for_it():
    for told in (False, True):
        group = Group("static")
        group.stable()
        effects = group.step(LeaveRequested(reason="bye", static=told))
        assert [type(effect) for effect in effects] == ([SendLeave] if told else [])


def test_a_rejoin_requested_during_a_join_starts_after_it():
    group = Group()
    join = group.join_sent()
    (sync,) = group.answer_join(join)
    group.step(RejoinRequested(reason="the subscription changed"))
    group.step(SyncAnswered(token=sync.token, code=ErrorCode.NONE))
    assert group.one(Polled(), PrepareJoin) == PrepareJoin(lost=False)


@given(data=st.data())
def test_no_order_of_events_breaks_the_members_invariants(data):
    """Answers come late, twice, and with any code. The invariants are checked after every step."""
    group = Group(data.draw(st.sampled_from([None, "static"])))
    codes = st.sampled_from([ErrorCode.NONE] * 6 + list(ErrorCode))
    sent: list = []
    for _ in range(data.draw(st.integers(1, 40))):
        kind = data.draw(st.integers(0, 7))
        if kind == 0:
            effects = group.step(Polled())
        elif kind == 1:
            effects = group.tick(data.draw(st.sampled_from([0, BACKOFF_MS, HEARTBEAT_MS, SESSION_MS, POLL_MS])))
        elif kind == 2:
            effects = group.step(JoinPrepared(protocols=PROTOCOLS))
        elif kind == 3:
            effects = group.step(RejoinRequested(reason="any"))
        elif kind == 4 and data.draw(st.booleans()):
            effects = group.step(LeaveRequested(reason="any"))
        elif sent:
            effects = group.step(_answer(data.draw(st.sampled_from(sent)), data.draw(codes)))
        else:
            continue
        sent += [
            effect for effect in effects if isinstance(effect, SendJoin | SendSync | SendHeartbeat | ComputeAssignment)
        ]
        assert len([effect for effect in effects if isinstance(effect, SendJoin | SendSync)]) <= 1


def _answer(request, code: ErrorCode) -> ClassicEvent:
    match request:
        case SendJoin():
            leader = "me" if request.token % 2 else "you"
            return JoinAnswered(
                token=request.token, code=code, generation_id=request.token, leader=leader, member_id="me"
            )
        case ComputeAssignment():
            return AssignmentComputed(token=request.token, assignments={"me": b""})
        case SendSync():
            return SyncAnswered(token=request.token, code=code)
        case _:
            return HeartbeatAnswered(identity=request.identity, code=code)
