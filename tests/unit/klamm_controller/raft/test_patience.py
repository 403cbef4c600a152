"""Tests that a silence without a death makes a replica wait longer, for a while."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_controller.raft.messages import AppendRequest, AppendResponse, VoteRequest
from klamm_controller.raft.patience import CALM_MS, Patience
from klamm_controller.raft.state import RoleName
from tests.support.raft_script import SETTINGS, Script, key

BASE_MS, MAX_MS = SETTINGS.election_timeout_ms, 4 * SETTINGS.election_timeout_ms


def test_the_timeout_doubles_after_false_alarms_and_halves_in_calm_periods():
    patience = Patience(400, 1_500)
    assert patience.timeout_ms(0) == 400
    for now_ms, expected_ms in ((1_000, 800), (2_000, 1_500), (4_000, 1_500)):
        patience.on_false_alarm(now_ms)
        assert patience.timeout_ms(now_ms) == expected_ms
    assert patience.timeout_ms(4_000 + CALM_MS - 1) == 1_500
    assert patience.timeout_ms(4_000 + CALM_MS) == 750
    assert patience.timeout_ms(4_000 + 2 * CALM_MS) == 400
    assert patience.timeout_ms(4_000 + 100 * CALM_MS) == 400


def test_several_false_alarms_of_one_silence_count_once():
    patience = Patience(400, 10_000)
    for now_ms in (1_000, 1_000, 1_001, 1_799):
        patience.on_false_alarm(now_ms)
    assert patience.timeout_ms(1_799) == 800
    patience.on_false_alarm(1_800)
    assert patience.timeout_ms(1_800) == 1_600


@given(st.integers(1, 5_000), st.integers(1, 5_000), st.lists(st.tuples(st.integers(0, 2 * CALM_MS), st.booleans())))
def test_the_timeout_stays_within_its_bounds(base_ms, max_ms, events):
    patience, now_ms = Patience(base_ms, max_ms), 0
    for pause_ms, is_alarm in events:
        now_ms += pause_ms
        if is_alarm:
            patience.on_false_alarm(now_ms)
        assert base_ms <= patience.timeout_ms(now_ms) <= max(base_ms, max_ms)


@pytest.fixture
def script():
    """Returns a script in which replica 1 leads three, and its no-op is committed everywhere."""
    script = Script(replace(SETTINGS, election_timeout_max_ms=MAX_MS))
    for command in ("cluster 1 2 3", "timeout 1", "settle"):
        script.run(command)
    return script


def timeout_ms(script: Script, node_id: int) -> int:
    """Returns the replica's present election timeout in milliseconds."""
    return script.node(node_id).election_timeout_ms


def append(script: Script, receiver: int, term: int) -> AppendRequest:
    """Returns an empty append of leader 1."""
    return AppendRequest(
        sender=key(1),
        receiver=key(receiver),
        term=term,
        base_index=0,
        prev_term=0,
        entries=(),
        high_watermark=0,
        read_round=0,
    )


def test_a_prospective_follower_doubles_its_timeout_if_the_leader_was_alive(script):
    follower = script.node(2)
    script.run("timeout 2")
    assert follower.role is RoleName.PROSPECTIVE
    follower.step(append(script, 2, follower.term), script.now_ms)
    assert (follower.role, timeout_ms(script, 2), timeout_ms(script, 3)) == (RoleName.FOLLOWER, 2 * BASE_MS, BASE_MS)


def test_a_voter_doubles_its_timeout_if_the_former_leader_was_alive(script):
    voter = script.node(2)
    term = voter.term
    request = VoteRequest(
        sender=key(3), receiver=key(2), term=term + 1, pre_vote=False, end_index=voter.log_end_index, last_term=term
    )
    voter.step(request, script.now_ms)
    assert timeout_ms(script, 2) == BASE_MS
    voter.step(append(script, 2, term), script.now_ms)
    assert (voter.term, timeout_ms(script, 2)) == (term + 1, 2 * BASE_MS)


def test_a_deposed_leader_doubles_its_timeout(script):
    leader = script.node(1)
    request = VoteRequest(
        sender=key(3), receiver=key(1), term=leader.term + 1, pre_vote=False, end_index=9, last_term=leader.term
    )
    leader.step(request, script.now_ms)
    assert (leader.role, timeout_ms(script, 1)) == (RoleName.FOLLOWER, 2 * BASE_MS)


def test_a_resigned_leader_doubles_its_timeout_if_a_late_answer_arrives(script):
    leader = script.node(1)
    term = leader.term
    while leader.role is RoleName.LEADER:
        script.now_ms = leader.next_deadline_ms()
        script.run("timeout 1")
    assert (leader.term, timeout_ms(script, 1)) == (term, BASE_MS)
    answer = AppendResponse(
        sender=key(2),
        receiver=key(1),
        term=term,
        rejected=False,
        base_index=0,
        end_index=1,
        last_term=term,
        read_round=0,
    )
    leader.step(answer, script.now_ms)
    assert timeout_ms(script, 1) == 2 * BASE_MS


def test_the_death_of_a_leader_does_not_change_the_timeout(script):
    for command in ("crash 1", "timeout 2", "settle"):
        script.run(command)
    assert {script.node(2).role, script.node(3).role} == {RoleName.LEADER, RoleName.FOLLOWER}
    assert (timeout_ms(script, 2), timeout_ms(script, 3)) == (BASE_MS, BASE_MS)


def test_a_leadership_transfer_does_not_change_the_timeout(script):
    for command in ("transfer 1 2", "settle"):
        script.run(command)
    assert script.node(2).role is RoleName.LEADER
    assert [timeout_ms(script, node_id) for node_id in (1, 2, 3)] == [BASE_MS] * 3
