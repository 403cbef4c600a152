"""Tests the small machines separately: reads, snapshot transfers, voter sets, the outbox, the settings."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.errors import ConfigError
from klamm_controller.raft.effects import HardState, Outbox
from klamm_controller.raft.membership import VoterHistory, VoterSet
from klamm_controller.raft.messages import (
    EntryKind,
    LogEntry,
    ReplicaKey,
    SnapshotChunkRequest,
    SnapshotId,
    TimeoutNowRequest,
    Voter,
)
from klamm_controller.raft.progress import Progress
from klamm_controller.raft.read_index import ReadIndex
from klamm_controller.raft.settings import RaftSettings
from klamm_controller.raft.snapshot import SnapshotReceiving, SnapshotSending
from klamm_controller.raft.transfer import choose_successor

SNAPSHOT = SnapshotId(end_index=7, term=2)
voters = st.lists(
    st.builds(Voter, st.builds(ReplicaKey, st.integers(0, 9), st.sampled_from("abc")), st.text(max_size=9))
)


def promise(number: int) -> TimeoutNowRequest:
    """Returns a message that differs for each number. The outbox does not care about its kind."""
    return TimeoutNowRequest(sender=ReplicaKey(1, "a"), receiver=ReplicaKey(2, "a"), term=number)


def chunk(position: int, data: bytes) -> SnapshotChunkRequest:
    return SnapshotChunkRequest(
        sender=ReplicaKey(1, "a"),
        receiver=ReplicaKey(2, "a"),
        term=2,
        snapshot=SNAPSHOT,
        voters=VoterSet().to_bytes(),
        position=position,
        data=data,
        is_last=False,
        read_round=0,
    )


class TestReadIndex:
    def test_reads_added_during_a_round_wait_for_the_next_round(self) -> None:
        reads = ReadIndex()
        reads.add(1, 10)
        assert reads.begin_round(10)
        reads.add(2, 11)
        assert not reads.begin_round(11)
        assert [read.request_id for read in reads.on_confirmed(1)] == [1]
        assert reads.begin_round(12)
        assert [(read.request_id, read.end_index) for read in reads.on_confirmed(2)] == [(2, 12)]

    def test_the_confirmation_of_an_older_round_releases_no_read(self) -> None:
        reads = ReadIndex()
        for request_id in (1, 2):
            reads.add(request_id, 0)
            reads.begin_round(0)
            if request_id == 1:
                reads.on_confirmed(1)
        assert reads.on_confirmed(1) == []
        assert len(reads) == 1

    def test_a_read_added_before_the_terms_first_commit_gets_the_index_of_the_round(self) -> None:
        reads = ReadIndex()
        reads.add(1, 3)
        reads.begin_round(8)
        assert reads.on_confirmed(1)[0].end_index == 8

    def test_abandon_returns_all_pending_reads(self) -> None:
        reads = ReadIndex()
        reads.add(1, 0)
        reads.begin_round(0)
        reads.add(2, 0)
        assert [read.request_id for read in reads.abandon()] == [1, 2]
        assert len(reads) == 0


class TestSnapshotOnTheMove:
    def test_only_the_next_snapshot_chunk_is_accepted(self) -> None:
        receiving = SnapshotReceiving(SNAPSHOT)
        assert receiving.accept(chunk(0, b"abc"))
        assert not receiving.accept(chunk(0, b"abc"))
        assert not receiving.accept(chunk(6, b"ghi"))
        assert receiving.accept(chunk(3, b"def"))
        assert receiving.position == 6

    def test_the_snapshot_sender_continues_at_the_receivers_position(self) -> None:
        sending = SnapshotSending(SNAPSHOT, now_ms=0)
        assert sending.on_needed(3, 10)
        assert not sending.on_needed(3, 11), "it is on its way already"
        assert sending.on_needed(0, 12), "the receiver began again"

    def test_a_snapshot_chunk_counts_as_lost_after_the_timeout(self) -> None:
        sending = SnapshotSending(SNAPSHOT, now_ms=0)
        assert not sending.on_timeout(99, 100)
        assert sending.on_timeout(100, 100)
        assert not sending.on_timeout(150, 100)


class TestVoterSet:
    @given(voters)
    def test_a_voter_set_round_trips_through_bytes_in_any_order(self, listed: list[Voter]) -> None:
        unique = {voter.key: voter for voter in sorted(listed)}
        one, other = VoterSet(unique.values()), VoterSet(reversed(unique.values()))
        assert VoterSet.from_bytes(one.to_bytes()) == one == other
        assert one.to_bytes() == other.to_bytes()

    @pytest.mark.parametrize("payload", [b"", b"{", b"[1]", b'[["x","a","h"]]', b'[[1,"a"]]', b"\xff"])
    def test_invalid_voter_set_bytes_are_refused(self, payload: bytes) -> None:
        with pytest.raises(ValueError, match="is not a voter set"):
            VoterSet.from_bytes(payload)

    def test_a_voter_is_added_to_and_removed_from_a_voter_set(self) -> None:
        one = Voter(ReplicaKey(1, "a"), "h:1")
        two = Voter(ReplicaKey(2, "a"), "h:2")
        both = VoterSet([one]).with_voter(two)
        assert both.keys == (one.key, two.key)
        assert both.without(one.key) == VoterSet([two])
        assert both.endpoint(two.key) == "h:2"
        assert both.endpoint(ReplicaKey(2, "b")) is None, "the same node with another disk is somebody else"

    @pytest.mark.parametrize("endpoint", ["a:1", "z:1"])
    def test_a_voter_set_gets_the_new_endpoint_of_a_voter(self, endpoint: str) -> None:
        one, two = Voter(ReplicaKey(1, "a"), "h:1"), Voter(ReplicaKey(2, "a"), "h:2")
        moved = VoterSet([one, two]).with_endpoint_of(Voter(one.key, endpoint))
        assert list(moved) == [Voter(one.key, endpoint), two]


class TestVoterHistory:
    def test_truncated_entries_restore_the_former_voters(self) -> None:
        sets = [VoterSet([Voter(ReplicaKey(n, "a"), "")]) for n in range(1, 2)]
        sets.append(sets[0].with_voter(Voter(ReplicaKey(2, "a"), "")))
        sets.append(sets[1].with_voter(Voter(ReplicaKey(3, "a"), "")))
        history = VoterHistory(0, sets[0])
        history.append([LogEntry(4, 1, EntryKind.VOTERS, sets[1].to_bytes())])
        history.append([LogEntry(5, 1, EntryKind.DATA, b""), LogEntry(6, 1, EntryKind.VOTERS, sets[2].to_bytes())])
        history.check_invariants()
        assert [history.at(end) for end in (4, 5, 6, 7)] == [sets[0], sets[1], sets[1], sets[2]]
        history.cut_start(6)
        assert history.at(6) == sets[1]
        history.cut_end(6)
        assert history.latest == sets[1]


class TestOutbox:
    def test_a_promise_without_a_pending_write_is_sent_immediately(self) -> None:
        outbox = Outbox()
        outbox.promise(promise(1))
        assert outbox.collect().messages == (promise(1),)

    def test_a_promise_waits_for_the_write_of_its_step_even_if_made_before_it(self) -> None:
        outbox = Outbox()
        outbox.promise(promise(1))
        outbox.send(promise(2))
        outbox.write_hard_state(HardState(term=1, voted_for=None))
        effects = outbox.collect()
        assert effects.persist is not None
        assert effects.messages == (promise(2),)
        outbox.on_persisted(effects.persist.persist_id)
        assert outbox.collect().messages == (promise(1),)

    def test_a_promise_of_a_later_step_waits_for_writes_of_earlier_ones(self) -> None:
        outbox = Outbox()
        for term in (1, 2):
            outbox.write_hard_state(HardState(term=term, voted_for=None))
            outbox.collect()
        outbox.promise(promise(1))
        assert outbox.collect().messages == ()
        outbox.on_persisted(1)
        assert outbox.collect().messages == ()
        outbox.check_invariants()
        outbox.on_persisted(2)
        assert outbox.collect().messages == (promise(1),)

    def test_a_persisted_write_covers_all_earlier_writes(self) -> None:
        outbox = Outbox()
        for term in (1, 2, 3):
            outbox.write_hard_state(HardState(term=term, voted_for=None))
            outbox.promise(promise(term))
            outbox.collect()
        outbox.on_persisted(2)
        outbox.on_persisted(1)
        assert outbox.collect().messages == (promise(1), promise(2))


class TestSuccessor:
    def test_the_successor_is_the_voter_with_the_longest_matching_log(self) -> None:
        keys = [ReplicaKey(n, "a") for n in (1, 2, 3, 4)]
        peers = {
            key: Progress(next_index=9, now_ms=0, inflight_messages_max=1, inflight_bytes_max=1) for key in keys[1:]
        }
        peers[keys[1]].on_accepted(5)
        peers[keys[2]].on_accepted(6)
        peers[keys[3]].on_accepted(9)
        voters = VoterSet(Voter(key, "") for key in keys[:3])
        assert choose_successor(voters, peers) == keys[2], "4 is further, but an observer"

    def test_a_sole_voter_has_no_successor(self) -> None:
        assert choose_successor(VoterSet([Voter(ReplicaKey(1, "a"), "")]), {}) is None


class TestSettings:
    def test_the_defaults_are_valid(self) -> None:
        RaftSettings().validate()

    @pytest.mark.parametrize(
        "field", [field.name for field in dataclasses.fields(RaftSettings)], ids=lambda name: str(name)
    )
    def test_every_setting_has_a_lower_bound(self, field: str) -> None:
        with pytest.raises(ConfigError, match=field):
            dataclasses.replace(RaftSettings(), **{field: -1}).validate()

    def test_a_heartbeat_interval_above_a_third_of_the_election_timeout_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="third"):
            RaftSettings(election_timeout_ms=200, heartbeat_interval_ms=100).validate()

    def test_a_too_short_observer_timeout_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="observer_timeout_ms"):
            RaftSettings(observer_timeout_ms=500).validate()
