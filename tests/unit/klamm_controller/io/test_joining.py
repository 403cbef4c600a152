"""Tests joined messages against the separate ones: a follower, or a leader, must end in the same state."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_controller.io.joining import JOINED_BYTES_MAX, joined
from klamm_controller.raft.events import LogPersisted
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import (
    AppendRequest,
    AppendResponse,
    EntryKind,
    LogEntry,
    ReplicaKey,
    TimeoutNowRequest,
    Voter,
)
from klamm_controller.raft.node import RaftNode
from klamm_controller.raft.raft_log import StoredState
from klamm_controller.raft.settings import RaftSettings

LEADER, ME = ReplicaKey(1, ""), ReplicaKey(2, "")
HEAD = {"sender": LEADER, "receiver": ME, "term": 3}
VOTERS = VoterSet([Voter(LEADER, "a:1"), Voter(ME, "b:2")])
LOG = [LogEntry(index, 1 + index // 4, EntryKind.DATA, b"x") for index in range(12)]


def append(base_index: int, end_index: int, high_watermark: int = 0, read_round: int = 0) -> AppendRequest:
    prev_term = LOG[base_index - 1].term if base_index else 0
    entries = tuple(LOG[base_index:end_index])
    return AppendRequest(
        **HEAD,
        base_index=base_index,
        prev_term=prev_term,
        entries=entries,
        high_watermark=high_watermark,
        read_round=read_round,
    )


def accepted(end_index: int, read_round: int = 0) -> AppendResponse:
    return AppendResponse(**HEAD, rejected=False, base_index=0, end_index=end_index, last_term=3, read_round=read_round)


def all_joined(messages):
    result = []
    for message in messages:
        both = joined(result[-1], message) if result else None
        if both is None:
            result.append(message)
        else:
            result[-1] = both
    return result


def follower_after(messages):
    """Returns the end of the follower's log, its committed entries, and the fields of its last answer."""
    node = RaftNode(ME, StoredState.empty(VOTERS), RaftSettings(), random.Random(1), now_ms=0)
    committed, answers = [], []
    for message in messages:
        effects = node.step(message, 1)
        committed += effects.committed
        answers += effects.messages
        if effects.persist is not None:
            effects = node.step(LogPersisted(persist_id=effects.persist.persist_id), 1)
            committed += effects.committed
            answers += effects.messages
    last = answers[-1]
    return node.log_end_index, committed, (last.rejected, last.end_index, last.read_round)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12), st.integers(0, 2)), min_size=1, max_size=8), st.data())
def test_joined_requests_leave_a_follower_in_the_same_state_as_separate_ones(steps, data) -> None:
    messages, base_index, high_watermark, read_round = [], 0, 0, 0
    for length, watermark, reads in steps:
        end_index = min(base_index + length, len(LOG))
        high_watermark = max(high_watermark, min(watermark, end_index))
        read_round += reads
        messages.append(append(base_index, end_index, high_watermark, read_round))
        base_index = end_index
    # Some messages may be lost. A follower rejects the messages after a gap.
    messages = [message for message in messages if data.draw(st.integers(0, 5))] or messages
    fewer = all_joined(messages)
    assert len(fewer) <= len(messages)
    assert follower_after(fewer) == follower_after(messages)


def test_consecutive_append_requests_are_joined():
    assert all_joined([append(0, 2), append(2, 5, 2, 1), append(5, 5, 5, 1)]) == [append(0, 5, 5, 1)]


@pytest.mark.parametrize(
    "second",
    [
        append(3, 5),
        append(1, 5),
        replace(append(2, 5), prev_term=9),
        replace(append(2, 5), term=4),
        replace(append(2, 5), receiver=ReplicaKey(3, "")),
        accepted(5),
        TimeoutNowRequest(**HEAD),
    ],
    ids=["gap", "overlap", "other log", "other term", "other receiver", "response", "time out"],
)
def test_requests_that_are_not_consecutive_are_not_joined(second):
    assert joined(append(0, 2), second) is None


def test_joined_requests_are_bounded_by_bytes():
    half = LogEntry(0, 1, EntryKind.DATA, bytes(JOINED_BYTES_MAX // 2))
    first = replace(append(0, 0), entries=(half,))
    second = replace(append(0, 0), base_index=1, prev_term=1, entries=(replace(half, index=1),))
    assert joined(first, second) is None


def test_several_acceptances_are_joined_into_the_last_one():
    assert all_joined([accepted(3, 2), accepted(5, 1), accepted(5, 4)]) == [accepted(5, 4)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (accepted(3), replace(accepted(5), rejected=True)),
        (replace(accepted(3), rejected=True), accepted(5)),
        (accepted(5), accepted(3)),
        (accepted(3), replace(accepted(5), term=4)),
    ],
    ids=["then rejected", "rejected first", "back", "other term"],
)
def test_answers_with_different_outcomes_are_not_joined(first, second):
    assert joined(first, second) is None
