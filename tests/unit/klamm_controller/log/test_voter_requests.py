from __future__ import annotations

import asyncio

import pytest

from klamm.errors import ErrorCode
from klamm_controller.log.voter_requests import VoterRequests
from klamm_controller.raft.effects import Appended, Rejected
from klamm_controller.raft.messages import EntryKind, LogEntry

APPENDED = Appended(request_id=1, base_index=5, end_index=6, term=2)


def entry(index: int, term: int) -> LogEntry:
    return LogEntry(index, term, EntryKind.VOTERS, b"[]")


def ended(*happenings) -> ErrorCode | None:
    """Returns the result of a request, or None if it does not end."""

    async def run() -> ErrorCode | None:
        requests = VoterRequests()
        done = requests.add(1)
        for happening in happenings:
            happening(requests)
        if not done.done():
            return None
        error = done.exception()
        return ErrorCode.NONE if error is None else error.code  # type: ignore[attr-defined]

    return asyncio.run(run())


def committed(index: int, term: int):
    return lambda requests: requests.on_committed(entry(index, term))


def replied(reply):
    return lambda requests: requests.on_reply(reply)


@pytest.mark.parametrize(
    ("happenings", "code"),
    [
        ([replied(APPENDED)], None),
        ([replied(APPENDED), committed(4, 2)], None),
        ([replied(APPENDED), committed(5, 2)], ErrorCode.NONE),
        ([replied(APPENDED), committed(5, 3)], ErrorCode.NOT_CONTROLLER),
        ([committed(5, 2)], None),
        ([replied(Rejected(request_id=1, code=ErrorCode.DUPLICATE_VOTER, leader=None))], ErrorCode.DUPLICATE_VOTER),
        ([replied(Rejected(request_id=9, code=ErrorCode.DUPLICATE_VOTER, leader=None))], None),
        ([replied(APPENDED), VoterRequests.give_up], ErrorCode.REQUEST_TIMED_OUT),
        ([VoterRequests.give_up, replied(APPENDED), committed(5, 2)], ErrorCode.REQUEST_TIMED_OUT),
        ([replied(APPENDED), committed(5, 2), VoterRequests.give_up], ErrorCode.NONE),
    ],
)
def test_a_voter_request_ends_with_the_outcome_of_its_entry(happenings, code):
    assert ended(*happenings) == code


def test_a_discarded_voter_request_gets_no_outcome():
    async def run() -> None:
        requests = VoterRequests()
        done = requests.add(1)
        requests.discard(1)
        requests.on_reply(APPENDED)
        requests.give_up()
        assert not done.done()

    asyncio.run(run())
