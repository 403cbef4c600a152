"""Commits and reads a group's offsets at its coordinator.

The commits of one consumer are sent one after the other, in the order of the calls. So an older commit never overwrites
a newer one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from klamm.cluster.client import KlammClient
from klamm.consumer.group.identity import NO_GENERATION, Identity
from klamm.errors import BrokerError, CommitFailedError, ErrorCode, KlammError, raise_for
from klamm.model import TopicPartition
from klamm.offsets import OffsetAndMetadata
from klamm.wire.calls import AnswerT, RequestT, ResponseT, Unary
from klamm.wire.v1 import broker_pb2, common_pb2, coordinator_pb2
from klamm.wire.v1.coordinator_rpc import CoordinatorStub

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
OUTSIDE_THE_GROUP = Identity(NO_GENERATION, "")
"""The identity of commits without membership: by `assign()` and the Admin."""

_GROUP_MOVED_ON = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
_ABOUT_MEMBERSHIP = (*_GROUP_MOVED_ON, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.FENCED_INSTANCE_ID)
COMMIT_FAILED = (
    "the group rebalanced and gave the partitions to other members. The time between polls was longer than "
    "max.poll.interval.ms, or no heartbeat came through for session.timeout.ms: process fewer records per poll "
    "(max.poll.records) or allow more time"
)


class _EpochMovedError(BrokerError):
    """The coordinator has raised the member's epoch. The heartbeat's answer with the new epoch is on its way
    (KIP-848)."""

    code = ErrorCode.STALE_MEMBER_EPOCH
    retriable = True


class OffsetStore:
    """Commits and reads the offsets of one group.

    The store calls `on_refused(identity, code, message)` if an answer shows that the membership has ended or
    changed."""

    def __init__(
        self,
        client: KlammClient,
        group_id: str,
        group_instance_id: str | None = None,
        on_refused: Callable[[Identity, ErrorCode, str], None] | None = None,
    ) -> None:
        self._client = client
        self._group_id = group_id
        self._group_instance_id = group_instance_id
        self._on_refused = on_refused
        self._turn = asyncio.Lock()

    async def commit(
        self, offsets: Offsets, identify: Callable[[], Identity], *, timeout_ms: int, skip_gone: bool = False
    ) -> None:
        """Commits offsets, and retries until `timeout_ms` is over. Calls `identify` before each attempt. With
        `skip_gone`, ignores partitions that do not exist, because no next owner reads them.

        Raises CommitFailedError if the group has moved on, RebalanceInProgressError during a rebalance (poll, then
        commit again), and other errors of the coordinator."""
        async with self._turn:
            await self._client.retrying(
                lambda: self._attempt_commit(offsets, identify(), skip_gone=skip_gone), timeout_ms=timeout_ms
            )

    async def commit_once(self, offsets: Offsets, identify: Callable[[], Identity], *, timeout_ms: int) -> None:
        """Makes one attempt to commit, after the coordinator was found. Raises errors that `commit` would retry,
        too.
        """
        async with self._turn:
            await self._client.retrying(lambda: self._client.coordinator_for(self._group_id), timeout_ms=timeout_ms)
            await self._attempt_commit(offsets, identify())

    async def fetch(
        self, partitions: Iterable[TopicPartition] | None, *, timeout_ms: int, require_stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the committed offsets of `partitions`, or of all partitions of the group if it is None. Partitions
        without a commit are left out. With `require_stable`, waits for open transactions that may change an offset
        (KIP-447)."""
        request = coordinator_pb2.OffsetFetchRequest(
            group_id=self._group_id,
            topics=[] if partitions is None else group_by_topic(partitions),
            all_topics=partitions is None,
            require_stable=require_stable,
        )

        async def attempt() -> coordinator_pb2.OffsetFetchResponse:
            response = await self._call(CoordinatorStub.offset_fetch, request)
            self._raise_for(response.error_code, response.error_message)
            for offset in response.offsets:
                raise_for(offset.error_code, f"{offset.topic}-{offset.partition}")
            return response

        response = await self._client.retrying(attempt, timeout_ms=timeout_ms)
        return {
            TopicPartition(offset.topic, offset.partition): OffsetAndMetadata(
                offset.offset, offset.metadata, offset.leader_epoch
            )
            for offset in response.offsets
            if offset.offset >= 0
        }

    async def _attempt_commit(self, offsets: Offsets, identity: Identity, *, skip_gone: bool = False) -> None:
        member = identity != OUTSIDE_THE_GROUP
        request = coordinator_pb2.OffsetCommitRequest(
            group_id=self._group_id,
            generation_id=identity.generation_id,
            member_id=identity.member_id,
            group_instance_id=(self._group_instance_id or "") if member else "",
            offsets=[
                coordinator_pb2.GroupOffset(
                    topic=tp.topic,
                    partition=tp.partition,
                    offset=offset.offset,
                    leader_epoch=offset.leader_epoch,
                    metadata=offset.metadata,
                )
                for tp, offset in sorted(offsets.items())
            ],
        )
        response = await self._call(CoordinatorStub.offset_commit, request)
        for partition in response.partitions:
            code = ErrorCode.of(partition.error_code)
            if skip_gone and code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if code in _ABOUT_MEMBERSHIP and self._on_refused is not None:
                self._on_refused(identity, code, partition.error_message)
            if code in _GROUP_MOVED_ON:
                raise CommitFailedError(COMMIT_FAILED if member else self._not_a_member())
            if code is ErrorCode.STALE_MEMBER_EPOCH:
                raise _EpochMovedError(
                    f"{partition.topic}-{partition.partition}: {partition.error_message or code.text}"
                )
            self._raise_for(code, f"{partition.topic}-{partition.partition}: {partition.error_message or code.text}")

    def _not_a_member(self) -> str:
        return (
            f"group {self._group_id} has members, and this consumer is none of them, because its partitions were "
            "assigned by hand: use subscribe(), another group.id, or stop the members first"
        )

    async def _call(self, rpc: Unary[CoordinatorStub, RequestT, ResponseT], request: RequestT) -> ResponseT:
        return await call_coordinator(self._client, self._group_id, rpc, request)

    def _raise_for(self, code: int, message: str) -> None:
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._client.forget_coordinator(self._group_id)
        raise_for(code, message)


async def call_coordinator(
    client: KlammClient,
    key: str,
    rpc: Unary[CoordinatorStub, RequestT, ResponseT],
    request: RequestT,
    timeout_ms: int | None = None,
    *,
    key_type: broker_pb2.CoordinatorKeyType = broker_pb2.COORDINATOR_KEY_TYPE_GROUP,
) -> ResponseT:
    """Calls the coordinator of a group or transactional id once. After an error, the next call looks the coordinator up
    again."""
    stub = await client.coordinator_for(key, key_type)
    try:
        return await (rpc(stub, request) if timeout_ms is None else rpc(stub, request, timeout_ms=timeout_ms))
    except KlammError:
        client.forget_coordinator(key, key_type)
        raise


async def ask_coordinator(
    client: KlammClient,
    group_id: str,
    rpc: Unary[CoordinatorStub, RequestT, AnswerT],
    request: RequestT,
    timeout_ms: int,
) -> tuple[ErrorCode, str, AnswerT | None]:
    """Calls the group's coordinator. Returns the error code, the message and the answer. If the call failed, the code
    stands for the failure and the answer is None."""
    try:
        answer = await call_coordinator(client, group_id, rpc, request, timeout_ms)
    except BrokerError as error:
        return error.code, error.message, None
    except KlammError as error:
        return ErrorCode.NETWORK_EXCEPTION, str(error), None
    return ErrorCode.of(answer.error_code), answer.error_message, answer


def group_by_topic(partitions: Iterable[TopicPartition]) -> list[common_pb2.TopicPartitions]:
    """Groups partitions by topic, in the form that requests have."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return [common_pb2.TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]
