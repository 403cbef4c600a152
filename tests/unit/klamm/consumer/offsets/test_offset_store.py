"""Tests commits and fetches of offsets: the result of each error code of the coordinator."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from klamm.cluster.client import KlammClient
from klamm.config import ClientConfig
from klamm.consumer.group.identity import Identity
from klamm.consumer.offsets.offset_store import OUTSIDE_THE_GROUP, OffsetStore
from klamm.errors import (
    EXCEPTIONS,
    CommitFailedError,
    CoordinatorLoadInProgressError,
    ErrorCode,
    FencedInstanceIdError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
)
from klamm.model import TopicPartition
from klamm.offsets import OffsetAndMetadata
from klamm.wire.v1 import common_pb2, coordinator_pb2

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ME = Identity(4, "me")
TIMEOUT_MS = 5_000


class Client(KlammClient):
    """A client whose coordinator gives each code, or raises each error, of a script, and then succeeds."""

    def __init__(self, *script: ErrorCode | Exception) -> None:
        super().__init__(ClientConfig.parse(retry_backoff_ms=0, retry_backoff_max_ms=0))
        self.script = list(script)
        self.requests: list = []
        self.forgotten = 0

    async def coordinator_for(self, group_id: str, key_type: int = 0):
        return SimpleNamespace(offset_commit=self._commit, offset_fetch=self._fetch)

    def forget_coordinator(self, group_id: str, key_type: int = 0) -> None:
        self.forgotten += 1

    def _next(self, request) -> ErrorCode:
        self.requests.append(request)
        outcome = self.script.pop(0) if self.script else ErrorCode.NONE
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _commit(self, request):
        code = self._next(request)
        results = [
            common_pb2.PartitionResult(topic=offset.topic, partition=offset.partition, error_code=code)
            for offset in request.offsets
        ]
        return coordinator_pb2.OffsetCommitResponse(partitions=results)

    async def _fetch(self, request):
        offsets = [
            coordinator_pb2.GroupOffset(topic="t", partition=0, offset=7, leader_epoch=2, metadata="m"),
            coordinator_pb2.GroupOffset(topic="t", partition=1, offset=-1),
            coordinator_pb2.GroupOffset(topic="t", partition=2, offset=-2),
        ]
        return coordinator_pb2.OffsetFetchResponse(error_code=self._next(request), offsets=offsets)


def commit(*script, identity: Identity = ME, once: bool = False):
    """Commits once. Returns the client and the membership errors that the store reported."""
    refused = []

    async def main() -> Client:
        client = Client(*script)
        store = OffsetStore(client, "group", "static", lambda *about: refused.append(about))
        offsets = {B: OffsetAndMetadata(3), A: OffsetAndMetadata(9, "note", 5)}
        how = store.commit_once if once else store.commit
        try:
            await how(offsets, lambda: identity, timeout_ms=TIMEOUT_MS)
        finally:
            commits.append((client, refused))
            await client.close()
        return client

    commits: list = []
    try:
        asyncio.run(main())
    except Exception as error:
        error.commits = commits[0]  # type: ignore[attr-defined]
        raise
    return commits[0]


def test_a_commit_names_the_member_and_the_offsets():
    client, refused = commit()
    (request,) = client.requests
    assert (request.generation_id, request.member_id, request.group_instance_id) == (4, "me", "static")
    assert [(offset.partition, offset.offset, offset.metadata, offset.leader_epoch) for offset in request.offsets] == [
        (0, 9, "note", 5),
        (1, 3, "", -1),
    ]
    assert refused == []


def test_a_commit_from_outside_the_group_names_no_member():
    client, _ = commit(identity=OUTSIDE_THE_GROUP)
    (request,) = client.requests
    assert (request.generation_id, request.member_id, request.group_instance_id) == (-1, "", "")


@pytest.mark.parametrize(
    ("outcome", "forgets"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),
        (ErrorCode.NOT_COORDINATOR, True),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, True),
        (EXCEPTIONS[ErrorCode.NETWORK_EXCEPTION]("scripted"), True),
    ],
)
def test_retriable_errors_are_retried(outcome, forgets):
    client, _ = commit(outcome)
    assert len(client.requests) == 2
    assert bool(client.forgotten) is forgets


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_commit_of_a_former_generation_fails_and_the_membership_is_notified(code):
    with pytest.raises(CommitFailedError, match=r"max\.poll\.records") as raised:
        commit(code)
    client, refused = raised.value.commits  # type: ignore[attr-defined]
    assert len(client.requests) == 1
    assert refused[0][:2] == (ME, code)


def test_the_error_of_a_commit_from_outside_says_that_the_group_has_members():
    with pytest.raises(CommitFailedError, match=r"group group has members, and this consumer is none of them"):
        commit(ErrorCode.UNKNOWN_MEMBER_ID, identity=OUTSIDE_THE_GROUP)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, RebalanceInProgressError),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstanceIdError),
    ],
)
def test_rebalance_and_fencing_errors_are_raised_and_the_membership_is_notified(code, error):
    with pytest.raises(error) as raised:
        commit(code)
    _, refused = raised.value.commits
    assert refused[0][:2] == (ME, code)


def test_other_commit_errors_name_the_partition():
    with pytest.raises(OffsetMetadataTooLargeError, match="t-0"):
        commit(ErrorCode.OFFSET_METADATA_TOO_LARGE)


def test_a_commit_with_once_is_not_retried():
    with pytest.raises(CoordinatorLoadInProgressError) as raised:
        commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, once=True)
    client, _ = raised.value.commits  # type: ignore[attr-defined]
    assert len(client.requests) == 1


def test_fetch_leaves_out_partitions_without_a_committed_offset():
    async def main():
        client = Client(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        found = await OffsetStore(client, "group").fetch([B, A], timeout_ms=TIMEOUT_MS)
        everything = await OffsetStore(client, "group").fetch(None, timeout_ms=TIMEOUT_MS)
        await client.close()
        assert everything == found
        return client, found

    client, found = asyncio.run(main())
    assert found == {A: OffsetAndMetadata(7, "m", 2)}
    assert [(topic.topic, list(topic.partitions)) for topic in client.requests[1].topics] == [("t", [0, 1])]
    assert client.requests[2].all_topics


def test_commits_are_sent_in_the_order_of_their_calls():
    async def main() -> list[int]:
        client = Client(*[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3)
        store = OffsetStore(client, "group")
        commits = [
            store.commit({A: OffsetAndMetadata(offset)}, lambda: ME, timeout_ms=TIMEOUT_MS) for offset in range(3)
        ]
        await asyncio.gather(*commits)
        await client.close()
        return [request.offsets[0].offset for request in client.requests]

    assert asyncio.run(main()) == [0, 0, 0, 0, 1, 2]
