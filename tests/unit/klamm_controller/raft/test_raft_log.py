"""Tests the log against a list of terms, and what only the real log has: durability, snapshots, bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_controller.raft.effects import HardState, Outbox
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import EntryKind, LogEntry, ReplicaKey, SnapshotId, Voter
from klamm_controller.raft.raft_log import START, RaftLog, StoredState

VOTERS = VoterSet([Voter(ReplicaKey(1, "a"), "one"), Voter(ReplicaKey(2, "a"), "two")])


def entries(terms: list[int], base_index: int = 0, size_bytes: int = 1) -> tuple[LogEntry, ...]:
    return tuple(
        LogEntry(base_index + offset, term, EntryKind.DATA, b"x" * size_bytes) for offset, term in enumerate(terms)
    )


def new_log(terms: list[int]) -> tuple[RaftLog, Outbox]:
    outbox = Outbox()
    log = RaftLog(StoredState.empty(VOTERS), outbox)
    if terms:
        log.append(entries(terms))
    return log, outbox


def written_log(terms: list[int]) -> tuple[RaftLog, Outbox]:
    """Returns the same as `new_log` after the write was handed out, so that the next step starts a new write."""
    log, outbox = new_log(terms)
    outbox.collect()
    return log, outbox


def last_position_of_list(terms: list[int], end_index: int, term: int) -> tuple[int, int]:
    """Finds the same position as the log does, but walks back one entry at a time."""
    end = min(end_index, len(terms))
    while end and terms[end - 1] > term:
        end -= 1
    return end, terms[end - 1] if end else 0


ascending = st.lists(st.integers(1, 6), max_size=12).map(sorted)


@given(ascending, st.integers(0, 15), st.integers(0, 7))
def test_last_position_is_the_last_with_a_term_that_is_not_greater(terms: list[int], end_index: int, term: int) -> None:
    log, _ = new_log(terms)
    assert log.last_position(end_index, term) == last_position_of_list(terms, end_index, term)


@given(ascending, ascending)
def test_the_search_for_the_common_point_ends_at_the_divergence(ours: list[int], theirs: list[int]) -> None:
    """Leader and follower go back by `last_position` in turn until they meet.

    If equal terms at an index mean equal prefixes, they must not meet below the point where the logs diverge.
    """
    leader, _ = new_log(ours)
    follower, _ = new_log(theirs)
    end_index, rounds = len(ours), 0
    while True:
        term = leader.term_before(end_index)
        assert term is not None
        if follower.has_position(end_index, term):
            break
        hint_end, hint_term = follower.last_position(end_index, term)
        next_end, _ = leader.last_position(hint_end, hint_term)
        assert next_end < end_index
        end_index, rounds = next_end, rounds + 1
    assert rounds <= len(set(ours)) + len(set(theirs)) + 1


@given(ascending.filter(bool), st.data())
def test_compaction_does_not_change_the_remaining_entries(terms: list[int], data: st.DataObject) -> None:
    log, outbox = new_log(terms)
    outbox.collect()
    log.on_persisted(outbox.issued_id)
    snapshot_end = data.draw(st.integers(1, len(terms)))
    retained = data.draw(st.integers(0, 5))
    log.compact(SnapshotId(end_index=snapshot_end, term=terms[snapshot_end - 1]), retained)
    log.check_invariants()
    assert log.start_index == max(0, snapshot_end - retained)
    for end_index in range(log.start_index, len(terms) + 1):
        assert log.term_before(end_index) == (terms[end_index - 1] if end_index else 0)
    assert [entry.term for entry in log.between(log.start_index, log.end_index)] == terms[log.start_index :]


def test_term_before_returns_none_for_unknown_positions() -> None:
    log, _ = new_log([1, 1, 2])
    log.compact(SnapshotId(end_index=2, term=1), 0)
    assert [log.term_before(end) for end in range(5)] == [0, None, 1, 2, None]


def test_a_pending_write_does_not_make_replaced_entries_durable() -> None:
    log, outbox = new_log([1, 1, 1])
    first = outbox.collect().persist
    log.cut_end(1)
    log.append(entries([2, 2], base_index=1))
    second = outbox.collect().persist
    assert first is not None
    assert second is not None
    log.on_persisted(first.persist_id)
    assert log.durable_end_index == 1
    log.on_persisted(second.persist_id)
    assert log.durable_end_index == 3


def test_a_persist_names_the_truncation_and_the_new_entries() -> None:
    log, outbox = written_log([1, 1, 1])
    log.cut_end(1)
    log.append(entries([2], base_index=1))
    persist = outbox.collect().persist
    assert persist is not None
    assert persist.log_end_index == 1
    assert [(entry.index, entry.term) for entry in persist.entries] == [(1, 2)]
    assert (persist.hard_state, persist.snapshot_chunk, persist.log_start_index) == (None, None, None)


def test_entries_from_is_bounded_but_never_empty() -> None:
    outbox = Outbox()
    log = RaftLog(StoredState.empty(VOTERS), outbox)
    log.append(entries([1] * 5, size_bytes=68))
    assert [entry.index for entry in log.entries_from(1, 250)] == [1, 2]
    assert [entry.index for entry in log.entries_from(4, 1)] == [4]
    assert log.entries_from(5, 1) == ()


def test_a_snapshot_that_the_log_contains_keeps_the_later_entries() -> None:
    log, _ = new_log([1, 1, 2, 2])
    log.install(SnapshotId(end_index=3, term=2), VOTERS)
    assert (log.start_index, log.end_index, log.last_term) == (3, 4, 2)


def test_a_snapshot_that_contradicts_the_log_replaces_all_of_it() -> None:
    log, outbox = written_log([1, 1, 1, 1])
    log.install(SnapshotId(end_index=3, term=2), VOTERS)
    assert (log.start_index, log.end_index, log.last_term, log.durable_end_index) == (3, 3, 2, 0)
    persist = outbox.collect().persist
    assert persist is not None
    assert persist.log_end_index == 0
    log.on_persisted(persist.persist_id)
    assert log.durable_end_index == 3
    log.check_invariants()


def test_a_snapshot_beyond_the_log_replaces_it() -> None:
    log, _ = written_log([1])
    log.install(SnapshotId(end_index=9, term=3), VOTERS)
    assert (log.start_index, log.end_index, log.last_term) == (9, 9, 3)


def test_voters_follow_the_log_forward_and_back() -> None:
    log, outbox = written_log([1])
    more = VOTERS.with_voter(Voter(ReplicaKey(3, "a"), "three"))
    log.append((LogEntry(1, 1, EntryKind.VOTERS, more.to_bytes()),))
    outbox.collect()
    assert log.voters.latest == more
    assert log.voters.at(1) == VOTERS
    log.cut_end(1)
    assert log.voters.latest == VOTERS


def test_is_behind_compares_the_last_term_first_and_then_the_length() -> None:
    log, _ = new_log([1, 2, 2])
    assert log.is_behind(3, 2)
    assert log.is_behind(1, 3)
    assert not log.is_behind(2, 2)
    assert not log.is_behind(9, 1)


def test_a_restart_with_entries_below_the_snapshot_has_the_latest_voters() -> None:
    more = VOTERS.with_voter(Voter(ReplicaKey(3, "a"), "three"))
    stored = StoredState(
        hard_state=HardState(term=2, voted_for=None),
        snapshot=SnapshotId(end_index=3, term=1),
        snapshot_voters=more,
        entries=(
            LogEntry(1, 1, EntryKind.DATA, b"x"),
            LogEntry(2, 1, EntryKind.VOTERS, more.to_bytes()),
            LogEntry(3, 2, EntryKind.DATA, b"y"),
        ),
    )
    log = RaftLog(stored, Outbox())
    log.check_invariants()
    assert (log.start_index, log.end_index, log.durable_end_index) == (1, 4, 4)
    assert log.voters.latest == more
    assert log.term_before(1) is None, "the entry before is gone, and the snapshot ends later"


@pytest.mark.parametrize("gap", [START, SnapshotId(end_index=9, term=1)])
def test_a_store_with_a_gap_is_refused(gap: SnapshotId) -> None:
    stored = replace(StoredState.empty(VOTERS), snapshot=gap, entries=entries([1, 1], base_index=3))
    with pytest.raises(AssertionError):
        RaftLog(stored, Outbox())
