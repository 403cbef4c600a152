"""The calls about offsets: OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm.wire.calls import CallContext
from klamm.wire.v1.common_pb2 import PartitionResult, TopicPartitions
from klamm.wire.v1.coordinator_pb2 import (
    GroupOffset,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from klamm_coordinator.group_shard.rules import GroupRules
from klamm_coordinator.io.log_starts import LogStarts
from klamm_coordinator.io.shards import Shards
from klamm_coordinator.offsets.messages import (
    CommitOffset,
    CommitOffsets,
    CommitReply,
    DeleteOffsets,
    DeleteOffsetsReply,
)
from klamm_coordinator.rpc.answering import answering
from klamm_coordinator.rpc.checks import check_group_id
from klamm_coordinator.rpc.failures import text_of
from klamm_coordinator.rpc.users import user_of
from klamm_server.metadata.image import MetadataImage
from klamm_server.rpc.absent_fields import or_unknown
from klamm_server.security.needs import (
    DELETE_GROUP,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    READ_GROUP,
    READ_TOPIC,
    TOPIC_SHOWN,
    Need,
)


class OffsetsRpc:
    """Answers the calls about offsets. Commits are refused for partitions that the newest metadata image does not
    have."""

    def __init__(self, shards: Shards[GroupRules], image: Callable[[], MetadataImage], log_starts: LogStarts) -> None:
        self._shards = shards
        self._image = image
        self._log_starts = log_starts

    async def offset_commit(self, request: OffsetCommitRequest, context: CallContext) -> OffsetCommitResponse:
        partitions = [TopicPartition(offset.topic, offset.partition) for offset in request.offsets]
        try:
            READ_GROUP.require(request.group_id)
            check_group_id(request.group_id)
            reply = await self._shards.ask(request.group_id, self._commit(request, context), CommitReply)
        except BrokerError as error:
            return OffsetCommitResponse(partitions=_results(partitions, [error.code] * len(partitions)))
        return OffsetCommitResponse(partitions=_results(partitions, reply.errors))

    @answering(OffsetFetchResponse)
    async def offset_fetch(self, request: OffsetFetchRequest, context: CallContext) -> OffsetFetchResponse:
        denied: list[TopicPartition] = []
        partitions = None
        if not request.all_topics:
            denied, partitions = _by_right(DESCRIBE_TOPIC, _partitions(request.topics))
        DESCRIBE_GROUP.require(request.group_id)
        check_group_id(request.group_id)
        rules = self._shards.of_key(request.group_id).rules
        stored = rules.offsets
        _refuse_stale(stored.fetch_error(request.group_id, request.member_id, or_unknown(request, "member_epoch")))
        if request.require_stable:
            _refuse_unstable(stored.unstable(request.group_id, partitions))
        fetched = [
            answer
            for answer in rules.growth.fetch(request.group_id, partitions)
            if partitions is not None or TOPIC_SHOWN.shows(answer.partition.topic)
        ]
        new = [answer.partition for answer in fetched if answer.is_new]
        starts = await self._log_starts.of(new) if new else {}
        offsets = [
            GroupOffset(
                topic=answer.partition.topic,
                partition=answer.partition.partition,
                offset=starts.get(answer.partition, answer.offset),
                leader_epoch=answer.leader_epoch,
                metadata=answer.metadata,
            )
            for answer in fetched
        ]
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        offsets += [
            GroupOffset(
                topic=partition.topic, partition=partition.partition, offset=-1, leader_epoch=-1, error_code=code
            )
            for partition in denied
        ]
        return OffsetFetchResponse(offsets=offsets)

    @answering(OffsetDeleteResponse)
    async def offset_delete(self, request: OffsetDeleteRequest, context: CallContext) -> OffsetDeleteResponse:
        denied, allowed = _by_right(READ_TOPIC, _partitions(request.topics))
        partitions = tuple(allowed)
        DELETE_GROUP.require(request.group_id)
        check_group_id(request.group_id)
        delete = partial(DeleteOffsets, group_id=request.group_id, partitions=partitions)
        reply = await self._shards.ask(request.group_id, lambda reply_id: delete(reply_id=reply_id), DeleteOffsetsReply)
        if reply.error:
            return OffsetDeleteResponse(error_code=reply.error, error_message=text_of(reply.error))
        failed = [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * len(denied)
        return OffsetDeleteResponse(partitions=_results([*partitions, *denied], [*reply.errors, *failed]))

    def _commit(self, request: OffsetCommitRequest, context: CallContext) -> Any:
        offsets = offsets_to_commit(self._image(), request.offsets)
        user = user_of(context, request.client_host)
        return lambda reply_id: CommitOffsets(
            reply_id=reply_id,
            group_id=request.group_id,
            generation_id=or_unknown(request, "generation_id"),
            member_id=request.member_id,
            instance_id=request.group_instance_id or None,
            offsets=offsets,
            user=user,
        )


def offsets_to_commit(image: MetadataImage, offsets: Iterable[GroupOffset]) -> tuple[CommitOffset, ...]:
    """Returns the offsets in the form that the shard expects."""
    return tuple(
        CommitOffset(
            partition=TopicPartition(offset.topic, offset.partition),
            offset=offset.offset,
            leader_epoch=or_unknown(offset, "leader_epoch"),
            metadata=offset.metadata,
            error=_refusal(image, offset),
        )
        for offset in offsets
    )


def _refuse_stale(error: ErrorCode) -> None:
    if error:
        raise EXCEPTIONS[error]()


def _refuse_unstable(partitions: list[TopicPartition]) -> None:
    if partitions:
        more = f" and {len(partitions) - 1} more" if len(partitions) > 1 else ""
        raise EXCEPTIONS[ErrorCode.UNSTABLE_OFFSET_COMMIT](
            f"an open transaction has a pending offset of {partitions[0]}{more}"
        )


def _refusal(image: MetadataImage, offset: GroupOffset) -> ErrorCode:
    """Returns the error with which a commit of this offset is refused, or NONE. As in Kafka, any number is stored: some
    clients commit -1 or -2, so that the group begins again by its reset policy."""
    if not READ_TOPIC.allows(offset.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    known = image.partition(offset.topic, offset.partition) is not None
    return ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _by_right(need: Need, partitions: Iterable[TopicPartition]) -> tuple[list[TopicPartition], list[TopicPartition]]:
    """Returns the partitions for which the caller does not meet the need, and those for which it does."""
    denied: list[TopicPartition] = []
    allowed: list[TopicPartition] = []
    for partition in partitions:
        (allowed if need.allows(partition.topic) else denied).append(partition)
    return denied, allowed


def _partitions(topics: Iterable[TopicPartitions]) -> list[TopicPartition]:
    return [TopicPartition(topic.topic, partition) for topic in topics for partition in topic.partitions]


def _results(partitions: Iterable[TopicPartition], errors: Iterable[ErrorCode]) -> list[PartitionResult]:
    return [
        PartitionResult(
            topic=partition.topic, partition=partition.partition, error_code=error, error_message=text_of(error)
        )
        for partition, error in zip(partitions, errors, strict=True)
    ]
