"""Tests the additions to the paper: bounds, directories, observers, refusals, and a leader that hands over."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from klamm.errors import ErrorCode
from klamm_controller.raft.effects import Appended, HardState, ReadReady, Rejected, Reply
from klamm_controller.raft.events import AddVoter, DeadlinePassed, Propose
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import (
    ANY_DIRECTORY,
    AppendRequest,
    AttachRequest,
    ReplicaKey,
    Voter,
    VoteRequest,
    VoteResponse,
)
from klamm_controller.raft.node import RaftNode
from klamm_controller.raft.raft_log import StoredState
from klamm_controller.raft.settings import RaftSettings
from klamm_controller.raft.state import RoleName
from tests.support.raft_script import SETTINGS, Script, key


def leading(settings: RaftSettings = SETTINGS, cluster: str = "cluster 1 2 3") -> Script:
    """Returns a script in which replica 1 leads and has committed its no-op."""
    script = Script(settings)
    for command in (cluster, "timeout 1", "settle"):
        script.run(command)
    assert script.node(1).is_active
    return script


def last_reply(script: Script) -> Reply:
    return script.replies[-1]


def assert_rejected(script: Script, code: ErrorCode) -> None:
    reply = last_reply(script)
    assert isinstance(reply, Rejected)
    assert reply.code is code


class TestRefusals:
    def test_a_follower_rejects_a_proposal_and_names_the_leader(self) -> None:
        script = leading()
        script.run("heartbeat 1")
        script.run("settle")
        script.run("propose 2 a")
        assert last_reply(script) == Rejected(request_id=1, code=ErrorCode.NOT_CONTROLLER, leader=key(1))

    @pytest.mark.parametrize("command", ["propose 1 a", "read 1", "add 1 4", "remove 1 2"])
    def test_a_node_without_a_known_leader_rejects_requests_and_names_none(self, command: str) -> None:
        script = Script()
        script.run("cluster 1 2 3")
        script.run(command)
        assert last_reply(script) == Rejected(request_id=1, code=ErrorCode.NOT_CONTROLLER, leader=None)

    def test_proposals_are_throttled_by_the_uncommitted_bytes(self) -> None:
        script = leading(replace(SETTINGS, uncommitted_bytes_max=100))
        script.run("cut 1")
        script.run("propose 1 a b")
        assert isinstance(last_reply(script), Appended)
        script.run("propose 1 c d")
        assert_rejected(script, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        script.run("heal")
        for command in ("heartbeat 1", "settle", "propose 1 c d"):
            script.run(command)
        assert isinstance(last_reply(script), Appended)

    def test_pending_reads_are_bounded(self) -> None:
        script = leading(replace(SETTINGS, reads_max=2))
        script.run("cut 1")
        for _ in range(3):
            script.run("read 1")
        assert_rejected(script, ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    def test_a_leader_in_a_transfer_rejects_proposals_and_names_its_successor(self) -> None:
        script = leading()
        script.run("transfer 1 3")
        script.run("propose 1 a")
        assert last_reply(script) == Rejected(request_id=1, code=ErrorCode.NOT_CONTROLLER, leader=key(3))

    def test_pending_reads_are_rejected_when_the_leader_resigns(self) -> None:
        script = leading()
        script.run("cut 1")
        script.run("read 1")
        while script.node(1).role is RoleName.LEADER:
            script.run("heartbeat 1")
        assert_rejected(script, ErrorCode.NOT_CONTROLLER)


class TestVoterChanges:
    def test_the_last_voter_cannot_be_removed(self) -> None:
        script = leading(cluster="cluster 1")
        script.run("remove 1 1")
        assert_rejected(script, ErrorCode.INVALID_REQUEST)

    def test_a_node_that_is_not_a_voter_cannot_be_removed(self) -> None:
        script = leading()
        script.run("remove 1 9")
        assert_rejected(script, ErrorCode.VOTER_NOT_FOUND)

    def test_a_voter_with_another_directory_of_the_same_node_is_rejected(self) -> None:
        script = leading()
        script.step(1, AddVoter(request_id=5, voter=Voter(ReplicaKey(2, "other"), "node-2")))
        assert_rejected(script, ErrorCode.DUPLICATE_VOTER)

    def test_a_replica_that_does_not_catch_up_is_not_added_as_a_voter(self) -> None:
        script = leading(replace(SETTINGS, add_voter_timeout_ms=250))
        script.run("add 1 4")
        for _ in range(4):
            script.run("heartbeat 1")
            script.run("settle")
        assert_rejected(script, ErrorCode.REQUEST_TIMED_OUT)
        assert len(script.node(1).voters) == 3

    def test_voters_cannot_be_changed_before_the_no_op_of_the_term_is_committed(self) -> None:
        script = Script()
        script.run("cluster 1 2 3")
        for command in ("timeout 1", "deliver 2", "deliver 1", "sync 1", "deliver 2", "sync 2", "deliver 1"):
            script.run(command)
        assert script.node(1).role is RoleName.LEADER
        script.run("remove 1 2")
        assert_rejected(script, ErrorCode.REQUEST_TIMED_OUT)

    def test_a_leadership_transfer_ends_after_its_timeout(self) -> None:
        script = leading()
        script.run("cut 1 3")
        script.run("propose 1 a")
        script.run("transfer 1 3")
        for _ in range(4):
            script.run("heartbeat 1")
            script.run("settle")
        script.run("propose 1 b")
        assert isinstance(last_reply(script), Appended)


class TestDirectories:
    def test_a_message_to_another_directory_of_the_node_is_ignored(self) -> None:
        script = Script()
        script.run("cluster 1 2 3")
        request = VoteRequest(
            sender=key(2), receiver=ReplicaKey(1, "lost"), term=4, pre_vote=False, end_index=0, last_term=0
        )
        script.step(1, request)
        assert (script.node(1).term, list(script.under_way)) == (0, [])

    def test_an_attach_request_may_address_any_directory(self) -> None:
        script = leading(cluster="cluster 1 2 3 / 4")
        script.under_way.append(
            AttachRequest(sender=key(4), receiver=ReplicaKey(1, ANY_DIRECTORY), term=0, end_index=0)
        )
        script.run("settle")
        assert script.node(4).leader == key(1)


class TestObservers:
    def test_an_observer_never_becomes_a_candidate(self) -> None:
        script = Script()
        script.run("cluster 1 2 3 / 4")
        for _ in range(5):
            script.run("timeout 4")
        assert script.node(4).role is RoleName.FOLLOWER
        assert script.node(4).term == 0

    def test_an_observer_does_not_count_towards_a_commit(self) -> None:
        script = leading(cluster="cluster 1 2 3 / 4")
        for command in ("timeout 4", "settle", "cut 1 2", "cut 1 3", "propose 1 a", "settle"):
            script.run(command)
        assert script.node(1).replicas[key(4)].match_end_index == 2
        assert script.node(1).high_watermark == 1

    def test_the_number_of_observers_is_bounded(self) -> None:
        script = leading(replace(SETTINGS, observers_max=1), cluster="cluster 1 2 3 / 4 5")
        for node_id in (4, 5):
            script.step(1, AttachRequest(sender=key(node_id), receiver=key(1), term=0, end_index=0))
        assert key(4) in script.node(1).replicas
        assert key(5) not in script.node(1).replicas

    def test_a_silent_observer_is_forgotten(self) -> None:
        script = leading(cluster="cluster 1 2 3 / 4")
        script.run("timeout 4")
        script.run("settle")
        script.run("crash 4")
        for _ in range(12):
            script.run("heartbeat 1")
            script.run("settle")
        assert key(4) not in script.node(1).replicas

    def test_an_observer_attaches_to_the_leader_that_a_follower_names(self) -> None:
        script = leading(cluster="cluster 1 2 3 / 4")
        script.run("heartbeat 1")
        script.run("settle")
        script.under_way.append(AttachRequest(sender=key(4), receiver=key(2), term=0, end_index=0))
        script.run("settle")
        assert script.node(4).log_end_index == script.node(1).log_end_index


def test_an_idle_leader_commits_no_op_entries() -> None:
    script = leading(replace(SETTINGS, idle_no_op_interval_ms=150))
    for _ in range(4):
        script.run("heartbeat 1")
        script.run("settle")
    assert script.node(2).high_watermark == 3, "the no-op of the term, and two of idleness"


def test_a_sole_voter_reads_and_commits_by_itself() -> None:
    script = leading(cluster="cluster 1")
    script.run("propose 1 a")
    script.run("read 1")
    assert last_reply(script) == ReadReady(request_id=2, end_index=1), "the proposal is not durable yet"
    script.run("sync 1")
    assert script.node(1).delivered_end_index == 2


def test_a_large_log_is_sent_in_bounded_messages() -> None:
    script = leading(replace(SETTINGS, append_bytes_max=200, inflight_messages_max=2))
    script.run("cut 1 3")
    for _ in range(20):
        script.run("propose 1 " + "x" * 60)
    script.run("settle")
    script.run("heal")
    script.run("heartbeat 1")
    sizes = []
    for _ in range(200):
        sizes += [
            sum(entry.size_bytes for entry in message.entries)
            for message in script.under_way
            if isinstance(message, AppendRequest) and message.receiver == key(3)
        ]
        if not script.advance():
            break
    assert max(sizes) <= 200
    assert script.node(3).log_end_index == script.node(1).log_end_index


def test_a_replica_restarts_with_its_term_its_vote_and_its_log() -> None:
    script = leading()
    script.run("propose 1 a")
    script.run("settle")
    script.run("crash 2")
    script.run("restart 2")
    node = script.node(2)
    assert (node.term, node.log_end_index, node.high_watermark) == (1, 2, 0)
    script.run("heartbeat 1")
    script.run("settle")
    assert [entry.payload for entry in script.replicas[2].delivered] == [b"", b"a"]


def test_a_step_with_an_earlier_time_fails() -> None:
    node = RaftNode(key(1), StoredState.empty(VoterSet([Voter(key(1), "")])), SETTINGS, random.Random(1), now_ms=100)
    with pytest.raises(AssertionError):
        node.step(DeadlinePassed(), 99)


def test_a_second_leader_of_the_same_term_is_an_assertion_error() -> None:
    script = leading()
    rival = AppendRequest(
        sender=key(2),
        receiver=key(1),
        term=1,
        base_index=0,
        prev_term=0,
        entries=(),
        high_watermark=0,
        read_round=0,
    )
    with pytest.raises(AssertionError, match="both lead in term 1"):
        script.step(1, rival)


def test_a_removed_voter_with_a_newer_term_attaches_to_the_leader_of_the_older_term() -> None:
    """The leader sends nothing to a voter that it removed. Its refusal of the pre-vote carries the older term."""
    voters = VoterSet(Voter(key(node_id), "") for node_id in (1, 2))
    stored = replace(StoredState.empty(voters), hard_state=HardState(term=5, voted_for=None))
    node = RaftNode(key(1), stored, SETTINGS, random.Random(1), now_ms=0)
    now_ms = node.next_deadline_ms()
    node.step(DeadlinePassed(), now_ms)
    refused = VoteResponse(sender=key(2), receiver=key(1), term=4, pre_vote=True, granted=False, leader=key(2))
    effects = node.step(refused, now_ms)
    assert effects.messages == (AttachRequest(sender=key(1), receiver=key(2), term=5, end_index=0),)


def test_the_same_events_have_the_same_effects() -> None:
    """The outcome depends on events, time and the seed only: no clock, no global randomness, no order of sets."""

    def run(seed: int) -> list[object]:
        voters = VoterSet(Voter(key(node_id), "") for node_id in (1, 2, 3))
        node = RaftNode(key(1), StoredState.empty(voters), SETTINGS, random.Random(seed), now_ms=0)
        effects: list[object] = []
        for _ in range(5):
            now_ms = node.next_deadline_ms()
            effects.append((now_ms, node.step(DeadlinePassed(), now_ms)))
            granted = VoteResponse(
                sender=key(2), receiver=key(1), term=node.term, pre_vote=True, granted=True, leader=None
            )
            effects.append(node.step(granted, now_ms))
            effects.append(node.step(Propose(request_id=1, payloads=(b"a",)), now_ms))
        return effects

    assert run(7) == run(7)
    assert run(7) != run(8)
