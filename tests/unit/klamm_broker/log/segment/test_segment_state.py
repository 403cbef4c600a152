"""Tests the states of a segment: each call in each state has the effect in the table, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from klamm_broker.log.segment import segment_state
from klamm_broker.log.segment.segment import Segment
from klamm_broker.log.segment.segment_files import CLEANED_SUFFIX
from klamm_broker.log.segment.segment_state import LEGAL_TRANSITIONS, SegmentState
from tests.support.segments import append, new_segment

UNKNOWN, ACTIVE, OPEN, RELEASED, WRITING, WRITTEN, ANNOUNCED, DELETED = SegmentState
WAYS: dict[SegmentState, tuple[str, ...]] = {
    UNKNOWN: (),
    ACTIVE: ("create",),
    OPEN: ("create", "deactivate"),
    RELEASED: ("create", "release"),
    WRITING: ("create",),
    WRITTEN: ("create", "release"),
    ANNOUNCED: ("create", "release", "announce"),
    DELETED: ("create", "release", "retire"),
}
"""How a segment gets into each state."""
OUTPUTS = (WRITING, WRITTEN, ANNOUNCED)

CALLS: dict[str, Callable[[Segment], object]] = {
    "create": Segment.create,
    "attach": lambda segment: segment.attach(0),
    "open": Segment.open,
    "recover": lambda segment: segment.recover(lambda header: None),
    "activate": Segment.activate,
    "deactivate": Segment.deactivate,
    "release": Segment.release,
    "announce": Segment.announce,
    "take_place": Segment.take_place,
    "retire": Segment.retire,
}

EXPECTED: dict[SegmentState, dict[str, SegmentState]] = {
    UNKNOWN: {
        "create": ACTIVE,
        "attach": RELEASED,
        "open": OPEN,
        "recover": OPEN,
        "activate": ACTIVE,
        "release": UNKNOWN,
        "retire": DELETED,
    },
    ACTIVE: {
        "open": ACTIVE,
        "recover": ACTIVE,
        "activate": ACTIVE,
        "deactivate": OPEN,
        "release": RELEASED,
        "retire": DELETED,
    },
    OPEN: {"open": OPEN, "recover": OPEN, "activate": ACTIVE, "release": RELEASED, "retire": DELETED},
    RELEASED: {"open": OPEN, "recover": OPEN, "activate": ACTIVE, "release": RELEASED, "retire": DELETED},
    WRITING: {"open": WRITING, "recover": WRITING, "release": WRITTEN, "retire": DELETED},
    WRITTEN: {"release": WRITTEN, "announce": ANNOUNCED, "retire": DELETED},
    ANNOUNCED: {"release": ANNOUNCED, "take_place": RELEASED, "retire": DELETED},
    DELETED: {"release": DELETED, "retire": DELETED},
}
"""The state after a call; a call that is missing is refused."""


def segment_in(state: SegmentState, directory: Path) -> Segment:
    suffix = CLEANED_SUFFIX if state in OUTPUTS else ""
    segment = new_segment(directory, file_suffix=suffix)
    if state is UNKNOWN:
        existing = new_segment(directory)
        existing.create()
        existing.release()
    for call in WAYS[state]:
        CALLS[call](segment)
    assert segment.state is state
    return segment


@pytest.mark.parametrize("state", SegmentState)
@pytest.mark.parametrize("call", CALLS)
def test_each_call_in_each_segment_state_makes_the_expected_transition_or_is_refused(
    tmp_path: Path, state: SegmentState, call: str
) -> None:
    segment = segment_in(state, tmp_path)
    expected = EXPECTED[state].get(call)
    if expected is None:
        with pytest.raises((AssertionError, FileNotFoundError)):
            CALLS[call](segment)
    else:
        CALLS[call](segment)
        assert segment.state is expected
        assert segment.files.is_open == (expected in (ACTIVE, OPEN, WRITING))
    segment.files.close()


@pytest.mark.parametrize("state", SegmentState)
def test_only_an_active_segment_and_a_cleaning_output_accept_appends(
    tmp_path: Path, make_batch, state: SegmentState
) -> None:
    segment = segment_in(state, tmp_path)
    if state in (ACTIVE, WRITING):
        append(segment, make_batch(1))
    else:
        with pytest.raises(AssertionError):
            append(segment, make_batch(1))
    segment.files.close()


def test_the_legal_transitions_equal_the_table_in_the_docstring() -> None:
    assert segment_state.__doc__ is not None
    _, table = segment_state.__doc__.split("Legal transitions:")
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| ")][1:]
    told = {
        SegmentState[source.strip()]: {state for state in SegmentState if state.name in targets}
        for source, targets in rows
    }
    assert told == LEGAL_TRANSITIONS
