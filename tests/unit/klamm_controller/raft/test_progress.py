"""Tests flow control towards one replica."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm_controller.raft.messages import EntryKind, LogEntry, SnapshotId
from klamm_controller.raft.progress import Progress, ProgressState
from klamm_controller.raft.snapshot import SnapshotSending


def new_progress(*, messages_max: int = 3, bytes_max: int = 1_000) -> Progress:
    return Progress(next_index=5, now_ms=0, inflight_messages_max=messages_max, inflight_bytes_max=bytes_max)


def batch(progress: Progress, count: int = 1, size_bytes: int = 1) -> tuple[LogEntry, ...]:
    first = progress.next_index
    return tuple(LogEntry(first + offset, 1, EntryKind.DATA, b"x" * size_bytes) for offset in range(count))


def test_a_probe_is_sent_once_until_it_may_be_lost() -> None:
    progress = new_progress()
    assert progress.may_send
    progress.on_sent((), 0)
    assert not progress.may_send
    progress.allow_probe()
    assert progress.may_send


def test_the_pipeline_is_bounded_by_messages() -> None:
    progress = new_progress(messages_max=3)
    progress.become_replicate()
    for _ in range(3):
        assert progress.may_send
        progress.on_sent(batch(progress), 0)
    assert not progress.may_send
    progress.on_accepted(1)
    assert progress.may_send


def test_the_pipeline_is_bounded_by_bytes() -> None:
    progress = new_progress(bytes_max=100)
    progress.become_replicate()
    progress.on_sent(batch(progress, size_bytes=200), 0)
    assert not progress.may_send
    progress.on_accepted(progress.next_index)
    assert progress.may_send


def test_one_answer_acknowledges_all_messages_that_it_covers() -> None:
    progress = new_progress(messages_max=3)
    progress.become_replicate()
    for _ in range(3):
        progress.on_sent(batch(progress, count=2), 0)
    progress.on_accepted(4)
    assert progress.match_end_index == 4
    progress.on_sent(batch(progress), 0)
    progress.on_sent(batch(progress), 0)
    assert not progress.may_send


def test_late_answers_do_not_lower_the_match_index() -> None:
    progress = new_progress()
    assert progress.on_accepted(4)
    assert not progress.on_accepted(2)
    assert progress.match_end_index == 4
    assert progress.is_stale_rejection(4)
    assert progress.is_stale_rejection(3)


def test_a_rejection_of_another_probe_is_stale() -> None:
    progress = new_progress()
    assert not progress.is_stale_rejection(5)
    progress.become_probe(2)
    assert progress.is_stale_rejection(5)
    assert not progress.is_stale_rejection(2)


def test_a_probe_never_starts_below_the_match_index() -> None:
    progress = new_progress()
    progress.on_accepted(4)
    progress.become_probe(1)
    assert progress.next_index == 4


def test_no_entries_are_sent_during_a_snapshot_transfer() -> None:
    progress = new_progress()
    progress.become_snapshot(SnapshotSending(SnapshotId(end_index=4, term=1), now_ms=0))
    assert not progress.may_send
    assert progress.state is ProgressState.SNAPSHOT
    progress.become_replicate()
    assert progress.snapshot is None


@given(st.lists(st.tuples(st.sampled_from(["send", "accept", "probe", "replicate"]), st.integers(0, 30)), max_size=60))
def test_random_steps_keep_the_progress_invariants(steps: list[tuple[str, int]]) -> None:
    progress = new_progress()
    for step, number in steps:
        match step:
            case "send":
                if progress.may_send:
                    progress.on_sent(batch(progress, count=number % 3), number)
            case "accept":
                progress.on_accepted(min(number, progress.next_index))
            case "probe":
                progress.become_probe(min(number, progress.next_index))
            case _:
                progress.become_replicate()
        progress.check_invariants()
