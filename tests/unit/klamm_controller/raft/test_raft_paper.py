"""Tests the rules of Raft as its author states them: Figure 3.1 of the thesis, rule by rule, and later chapters.

The test sends messages to one replica (number 1 of three) and compares its reactions with the rule. The longer stories
are in tests/scenarios/raft, and the search for unforeseen cases in tests/sim.
"""

from __future__ import annotations

import pytest

from klamm_controller.raft.events import DeadlinePassed
from klamm_controller.raft.messages import (
    AppendRequest,
    AppendResponse,
    EntryKind,
    LogEntry,
    Message,
    VoteRequest,
    VoteResponse,
)
from klamm_controller.raft.node import RaftNode
from klamm_controller.raft.state import RoleName
from tests.support.raft_script import SETTINGS, Script, key


class Single:
    """Replica 1 of 1, 2 and 3. The test plays the others."""

    def __init__(self) -> None:
        self.script = Script()
        self.script.run("cluster 1 2 3")

    @property
    def node(self) -> RaftNode:
        return self.script.node(1)

    def receive(self, message: Message) -> list[Message]:
        """Receives a message. Returns the messages sent at once."""
        self.script.under_way.clear()
        self.script.step(1, message)
        return list(self.script.under_way)

    def answers(self, message: Message) -> list[Message]:
        """Receives a message. Returns the messages sent after its disk has finished."""
        self.receive(message)
        self.script.sync(1)
        return list(self.script.under_way)

    def restart(self) -> None:
        self.script.run("crash 1")
        self.script.run("restart 1")

    def time_out(self) -> list[Message]:
        self.script.under_way.clear()
        self.script.run("timeout 1")
        return list(self.script.under_way)

    def stand(self) -> None:
        """Makes the replica a candidate whose own vote is durable."""
        self.time_out()
        self.receive(pre_vote_granted(2, self.node.term))
        self.script.sync(1)

    def lead(self) -> None:
        self.stand()
        self.receive(vote_granted(2, self.node.term))

    def terms(self) -> list[int]:
        """Returns the terms of the entries in the stored log."""
        self.script.sync(1)
        return [entry.term for entry in self.script.replicas[1].durable.entries]


@pytest.fixture
def single() -> Single:
    return Single()


def entries(terms: list[int], base_index: int = 0) -> tuple[LogEntry, ...]:
    return tuple(LogEntry(base_index + offset, term, EntryKind.DATA, b"x") for offset, term in enumerate(terms))


def append(
    term: int, terms: list[int], *, base: int = 0, prev_term: int = 0, hw: int = 0, sender: int = 2
) -> AppendRequest:
    return AppendRequest(
        sender=key(sender),
        receiver=key(1),
        term=term,
        base_index=base,
        prev_term=prev_term,
        entries=entries(terms, base),
        high_watermark=hw,
        read_round=0,
    )


def accepted(end_index: int, *, term: int, sender: int = 2) -> AppendResponse:
    return AppendResponse(
        sender=key(sender),
        receiver=key(1),
        term=term,
        rejected=False,
        base_index=0,
        end_index=end_index,
        last_term=term,
        read_round=0,
    )


def vote_request(term: int, *, sender: int = 2, log: tuple[int, int] = (0, 0), pre_vote: bool = False) -> VoteRequest:
    return VoteRequest(
        sender=key(sender), receiver=key(1), term=term, pre_vote=pre_vote, end_index=log[0], last_term=log[1]
    )


def vote_granted(sender: int, term: int, *, pre_vote: bool = False) -> VoteResponse:
    return VoteResponse(sender=key(sender), receiver=key(1), term=term, pre_vote=pre_vote, granted=True, leader=None)


def pre_vote_granted(sender: int, term: int) -> VoteResponse:
    return vote_granted(sender, term, pre_vote=True)


class TestRequestVote:
    def test_1_reply_false_if_term_is_less_than_the_current_one(self, single: Single) -> None:
        single.answers(append(3, []))
        (response,) = single.answers(vote_request(2))
        assert isinstance(response, VoteResponse)
        assert (response.granted, response.term) == (False, 3)

    @pytest.mark.parametrize(
        ("log", "granted"),
        [((2, 2), True), ((3, 2), True), ((1, 3), True), ((1, 2), False), ((9, 1), False)],
        ids=["equal", "longer", "later term", "shorter", "earlier term"],
    )
    def test_2_grant_only_if_the_candidates_log_is_at_least_as_up_to_date(
        self, single: Single, log: tuple[int, int], granted: bool
    ) -> None:
        single.answers(append(2, [1, 2]))
        (response,) = single.answers(vote_request(5, log=log))
        assert isinstance(response, VoteResponse)
        assert response.granted is granted

    def test_2_grant_only_if_the_vote_went_to_no_other_candidate(self, single: Single) -> None:
        results = []
        for sender in (2, 3, 2):
            (response,) = single.answers(vote_request(5, sender=sender))
            assert isinstance(response, VoteResponse)
            results.append(response.granted)
        assert results == [True, False, True]

    def test_the_vote_is_sent_only_when_it_is_durable_and_survives_a_crash(self, single: Single) -> None:
        assert single.receive(vote_request(5)) == []
        single.script.sync(1)
        assert len(single.script.under_way) == 1
        single.restart()
        (response,) = single.answers(vote_request(5, sender=3))
        assert isinstance(response, VoteResponse)
        assert response.granted is False


class TestAppendEntries:
    def test_1_reply_false_if_term_is_less_than_the_current_one(self, single: Single) -> None:
        single.answers(vote_request(5))
        (response,) = single.answers(append(4, [4]))
        assert isinstance(response, AppendResponse)
        assert (response.rejected, response.term) == (True, 5)
        assert single.terms() == []

    @pytest.mark.parametrize(("base", "prev_term"), [(3, 1), (2, 2)], ids=["too short", "another term"])
    def test_2_reply_false_without_an_entry_of_the_previous_term_there(
        self, single: Single, base: int, prev_term: int
    ) -> None:
        single.answers(append(1, [1, 1]))
        (response,) = single.answers(append(2, [2], base=base, prev_term=prev_term))
        assert isinstance(response, AppendResponse)
        assert response.rejected
        assert (response.end_index, response.last_term) == (2, 1)
        assert single.terms() == [1, 1]

    def test_3_delete_an_entry_that_conflicts_and_all_that_follow(self, single: Single) -> None:
        single.answers(append(1, [1, 1, 1]))
        single.answers(append(2, [2], base=1, prev_term=1))
        assert single.terms() == [1, 2]

    def test_3_delete_nothing_that_does_not_conflict(self, single: Single) -> None:
        single.answers(append(1, [1, 1, 1]))
        single.answers(append(1, [1], base=0))
        assert single.terms() == [1, 1, 1]

    def test_4_append_entries_not_already_in_the_log(self, single: Single) -> None:
        single.answers(append(1, [1]))
        (response,) = single.answers(append(1, [1, 1, 1], base=0))
        assert isinstance(response, AppendResponse)
        assert (response.rejected, response.end_index) == (False, 3)
        assert single.terms() == [1, 1, 1]

    def test_4_the_acknowledgement_is_sent_only_when_the_entries_are_durable(self, single: Single) -> None:
        assert single.receive(append(1, [1])) == []
        single.script.sync(1)
        assert [message.describe() for message in single.script.under_way] == ["AppendResponse end=1"]

    def test_5_commit_at_most_up_to_the_last_new_entry(self, single: Single) -> None:
        single.answers(append(1, [1, 1, 1]))
        single.answers(append(2, [], base=1, prev_term=1, hw=3))
        assert single.node.high_watermark == 1, "entries 1 and 2 may not be this leader's"


class TestAllServers:
    def test_committed_entries_are_applied_in_order_and_once(self, single: Single) -> None:
        single.answers(append(1, [1, 1], hw=1))
        single.answers(append(1, [1, 1, 1], hw=3))
        assert [entry.index for entry in single.script.replicas[1].delivered] == [0, 1, 2]

    @pytest.mark.parametrize("prepare", [Single.time_out, Single.stand, Single.lead])
    def test_a_greater_term_turns_each_role_into_a_follower(self, single: Single, prepare: object) -> None:
        assert callable(prepare)
        prepare(single)
        single.receive(append(9, []))
        assert (single.node.role, single.node.term, single.node.leader) == (RoleName.FOLLOWER, 9, key(2))


class TestFollowers:
    def test_a_follower_without_messages_of_a_leader_becomes_prospective_after_the_timeout(
        self, single: Single
    ) -> None:
        single.answers(append(1, []))
        deadline_ms = single.node.next_deadline_ms()
        single.script.now_ms = deadline_ms - 1
        single.script.step(1, DeadlinePassed())
        assert single.node.role is RoleName.FOLLOWER
        single.script.now_ms = deadline_ms
        single.script.step(1, DeadlinePassed())
        assert single.node.role is RoleName.PROSPECTIVE

    def test_each_message_of_the_leader_restarts_the_random_election_timeout(self, single: Single) -> None:
        delays = set()
        for now_ms in range(100, 2_000, 100):
            single.script.now_ms = now_ms
            single.answers(append(1, []))
            delays.add(single.node.next_deadline_ms() - now_ms)
        assert all(300 <= delay_ms < 600 for delay_ms in delays)
        assert len(delays) > 10


class TestCandidates:
    def test_a_candidate_increments_the_term_votes_for_itself_and_asks_all_voters(self, single: Single) -> None:
        single.time_out()
        single.receive(pre_vote_granted(2, 0))
        assert (single.node.role, single.node.term) == (RoleName.CANDIDATE, 1)
        single.script.sync(1)
        state = single.script.replicas[1].durable.hard_state
        assert (state.term, state.voted_for) == (1, key(1))
        asked = [message for message in single.script.under_way if isinstance(message, VoteRequest)]
        assert [(message.receiver, message.pre_vote) for message in asked] == [(key(2), False), (key(3), False)]

    def test_a_candidate_with_a_majority_of_votes_becomes_leader(self, single: Single) -> None:
        single.stand()
        single.receive(vote_granted(3, 1))
        assert single.node.role is RoleName.LEADER

    def test_a_candidate_starts_no_new_term_while_its_own_vote_is_not_durable(self, single: Single) -> None:
        """The candidate would otherwise begin one term after another while its disk is full.

        The others would follow it to each term without ever electing a leader.
        """
        single.time_out()
        single.receive(pre_vote_granted(2, 0))
        for _ in range(3):
            single.time_out()
            single.receive(pre_vote_granted(2, 1))
        assert (single.node.role, single.node.term) == (RoleName.CANDIDATE, 1)
        single.script.sync(1)
        asked = [message for message in single.script.under_way if isinstance(message, VoteRequest)]
        assert [(message.term, message.pre_vote) for message in asked] == [(1, False), (1, False)]
        single.time_out()
        assert (single.node.role, single.node.term) == (RoleName.PROSPECTIVE, 1)

    def test_votes_of_another_term_or_for_the_pre_vote_do_not_count(self, single: Single) -> None:
        single.stand()
        single.receive(vote_granted(2, 0))
        single.receive(pre_vote_granted(2, 1))
        assert single.node.role is RoleName.CANDIDATE

    def test_votes_of_replicas_that_are_not_voters_do_not_count(self, single: Single) -> None:
        single.stand()
        single.receive(vote_granted(7, 1))
        assert single.node.role is RoleName.CANDIDATE

    def test_a_candidate_becomes_a_follower_of_the_leader_of_its_term(self, single: Single) -> None:
        single.stand()
        single.receive(append(1, []))
        assert (single.node.role, single.node.leader) == (RoleName.FOLLOWER, key(2))

    def test_a_candidate_asks_for_pre_votes_again_after_a_timeout(self, single: Single) -> None:
        single.stand()
        messages = single.time_out()
        assert single.node.role is RoleName.PROSPECTIVE
        assert all(isinstance(message, VoteRequest) and message.pre_vote for message in messages)


class TestLeaders:
    def test_a_leader_sends_append_requests_immediately_and_when_idle(self, single: Single) -> None:
        single.lead()
        assert {message.receiver for message in single.script.under_way} == {key(2), key(3)}
        messages = single.time_out()
        assert [type(message) for message in messages] == [AppendRequest, AppendRequest]

    def test_the_first_entry_of_a_leader_is_a_no_op_of_its_term(self, single: Single) -> None:
        single.answers(append(1, [1, 1]))
        single.lead()
        assert single.terms() == [1, 1, 2]

    def test_a_leader_sends_entries_from_the_next_index(self, single: Single) -> None:
        single.lead()
        (message,) = single.receive(accepted(0, term=1))
        assert isinstance(message, AppendRequest)
        assert [entry.kind for entry in message.entries] == [EntryKind.NO_OP]

    def test_a_leader_commits_entries_of_its_term_that_a_majority_has(self, single: Single) -> None:
        single.lead()
        single.terms()
        single.receive(accepted(1, term=1))
        assert single.node.high_watermark == 1

    def test_a_leader_does_not_count_its_own_entries_before_they_are_durable(self, single: Single) -> None:
        single.lead()
        single.receive(accepted(1, term=1))
        assert single.node.high_watermark == 0
        single.script.sync(1)
        assert single.node.high_watermark == 1

    def test_a_leader_does_not_commit_entries_of_earlier_terms_by_counting_replicas(self, single: Single) -> None:
        single.answers(append(1, [1, 1]))
        single.lead()
        single.terms()
        single.receive(accepted(2, term=2))
        assert single.node.high_watermark == 0
        single.receive(accepted(3, term=2))
        assert single.node.high_watermark == 3

    def test_a_leader_delivers_a_proposal_only_after_its_commit(self, single: Single) -> None:
        single.lead()
        single.script.run("propose 1 a")
        single.terms()
        assert single.script.replicas[1].delivered == []
        single.receive(accepted(2, term=1))
        assert [entry.payload for entry in single.script.replicas[1].delivered] == [b"", b"a"]

    def test_a_stale_rejection_does_not_lower_the_match_index(self, single: Single) -> None:
        single.lead()
        single.terms()
        single.receive(accepted(1, term=1))
        rejection = AppendResponse(
            sender=key(2),
            receiver=key(1),
            term=1,
            rejected=True,
            base_index=1,
            end_index=0,
            last_term=0,
            read_round=0,
        )
        assert single.receive(rejection) == []
        assert single.node.replicas[key(2)].match_end_index == 1


class TestLaterChapters:
    def test_4_2_2_a_replica_that_is_not_a_voter_grants_votes(self) -> None:
        script = Script()
        script.run("cluster 2 3 / 1")
        script.step(1, vote_request(4))
        script.sync(1)
        (response,) = script.under_way
        assert isinstance(response, VoteResponse)
        assert response.granted

    def test_4_2_2_a_leader_that_removed_itself_stands_again_to_commit_its_removal(self) -> None:
        """No other replica can win, because this log is the longest.

        The replica must stand although it is no voter any more.
        """
        script = Script()
        script.run("cluster 1 2 3")
        for command in ("timeout 1", "settle", "cut 1", "remove 1 1", "sync 1"):
            script.run(command)
        for _ in range(4):
            script.run("heartbeat 1")
        assert script.node(1).role is RoleName.PROSPECTIVE
        for command in ("drop 2", "drop 3", "heal", "timeout 1", "settle"):
            script.run(command)
        assert script.node(1).role is RoleName.FOLLOWER
        assert [voter.key for voter in script.node(2).voters] == [key(2), key(3)]

    def test_4_2_2_a_removed_voter_that_alone_has_the_entry_stands_after_a_restart(self) -> None:
        """Replicas 1 and 2 vote. 1 removes 2, but crashes before the entry is durable there.

        2 has the entry, and became a voter after the point that it restarts from.
        """
        script = Script()
        script.run("cluster 1 / 2")
        for command in ("timeout 1", "settle", "timeout 2", "settle", "add 1 2", "settle"):
            script.run(command)
        for command in ("remove 1 2", "deliver 2", "sync 2", "crash 1", "crash 2", "restart 1", "restart 2"):
            script.run(command)
        assert (script.node(1).log_end_index, script.node(2).log_end_index) == (2, 3)
        for command in ("timeout 1", "settle", "timeout 2", "settle"):
            script.run(command)
        assert script.node(1).log_end_index >= 3
        assert script.node(1).voters.keys == (key(1),)

    def test_4_2_3_a_pre_vote_is_refused_while_a_leader_is_heard_and_changes_nothing(self, single: Single) -> None:
        single.answers(append(1, []))
        for now_ms, granted in ((100, False), (299, False), (300, True)):
            single.script.now_ms = now_ms
            (response,) = single.receive(vote_request(8, log=(9, 8), pre_vote=True))
            assert isinstance(response, VoteResponse)
            assert response.granted is granted
        assert (single.node.term, single.node.leader) == (1, key(2))

    def test_6_2_a_leader_without_answers_of_a_majority_resigns(self, single: Single) -> None:
        single.lead()
        begin_ms = single.script.now_ms
        while single.node.role is RoleName.LEADER:
            single.time_out()
        assert SETTINGS.election_timeout_ms <= single.script.now_ms - begin_ms <= 2 * SETTINGS.election_timeout_ms

    def test_10_2_1_a_leader_sends_entries_while_it_writes_them(self, single: Single) -> None:
        single.lead()
        single.receive(accepted(0, term=1))
        single.script.under_way.clear()
        single.script.run("propose 1 a")
        sent = [message for message in single.script.under_way if isinstance(message, AppendRequest)]
        assert [entry.payload for message in sent for entry in message.entries] == [b"a"]
        assert single.script.replicas[1].durable.entries == []
