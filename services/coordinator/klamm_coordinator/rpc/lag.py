"""The calls about lag: DescribeGroupLag, ForgetLostRecords, TellLogStarts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm.wire.calls import CallContext
from klamm.wire.v1 import coordinator_pb2 as pb
from klamm_coordinator.group_shard.events import ForgetLosses, ForgetLossesReply
from klamm_coordinator.group_shard.rules import GroupRules
from klamm_coordinator.groups.topics import Topics
from klamm_coordinator.io.group_watch import GroupWatch
from klamm_coordinator.io.shard_host import ShardHost
from klamm_coordinator.io.shards import Shards
from klamm_coordinator.io.unread_records import UnreadAsker
from klamm_coordinator.lag.group_lag import Committed, PartitionLag
from klamm_coordinator.rpc.answering import answering
from klamm_coordinator.rpc.checks import check_group_id
from klamm_coordinator.rpc.failures import text_of
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.sliced_work import map_in_slices
from klamm_server.security.needs import DESCRIBE_GROUP, READ_GROUP, TOPIC_SHOWN

HOUR_S: Final = 3_600
_NO_COMMIT: Final = -1
"""The position that is asked about where a group has no offset. Only the ends of the log are used."""


class LagRpc:
    """The calls about lag. Each group of a request succeeds or fails by itself."""

    def __init__(
        self,
        shards: Shards[GroupRules],
        watch: GroupWatch,
        asker: UnreadAsker,
        topics: Callable[[], Topics],
        clock: Clock,
    ) -> None:
        self._shards = shards
        self._watch = watch
        self._asker = asker
        self._topics = topics
        self._clock = clock

    async def describe_group_lag(
        self, request: pb.DescribeGroupLagRequest, context: CallContext
    ) -> pb.DescribeGroupLagResponse:
        described = []
        for group_id in request.group_ids:
            described.append(await self._describe(group_id))
            await asyncio.sleep(0)
        return pb.DescribeGroupLagResponse(groups=described)

    async def _describe(self, group_id: str) -> pb.GroupLag:
        try:
            DESCRIBE_GROUP.require(group_id)
            positions = self._positions(group_id)
            unread = await self._asker.ask((tp, _offset(at)) for tp, at in positions.items())
            lags = await map_in_slices(
                lambda tp: self._watch.lag(group_id, tp, positions[tp], unread[tp, _offset(positions[tp])]), positions
            )
        except BrokerError as error:
            return pb.GroupLag(group_id=group_id, error_code=error.code, error_message=error.message)
        now_ms = self._clock.wall_ms()
        generations = self._watch.histories.generations.get(group_id)
        rate = None if generations is None else generations.rate(now_ms)
        return pb.GroupLag(
            group_id=group_id,
            time_ms=now_ms,
            partitions=await map_in_slices(_lag, lags),
            rebalances_per_hour=None if rate is None else HOUR_S * rate,
        )

    def _positions(self, group_id: str) -> dict[TopicPartition, Committed | None]:
        """Returns the partitions of a group, sorted, with its offsets. Raises BrokerError."""
        rules = self._existing(group_id).rules
        stored = rules.state.offsets.of_group(group_id)
        return {
            partition: None
            if (value := stored.get(partition)) is None
            else Committed(value.offset, value.commit_timestamp_ms)
            for partition in sorted(rules.partitions_of(group_id, self._topics()))
            if TOPIC_SHOWN.shows(partition.topic)
        }

    def _existing(self, group_id: str) -> ShardHost[GroupRules]:
        """Returns the shard of a group. Raises BrokerError, among them GroupIdNotFoundError."""
        check_group_id(group_id)
        host = self._shards.of_key(group_id)
        if not host.rules.has(group_id):
            raise EXCEPTIONS[ErrorCode.GROUP_ID_NOT_FOUND](f"there is no group {group_id!r}")
        return host

    @answering(pb.ForgetLostRecordsResponse)
    async def forget_lost_records(
        self, request: pb.ForgetLostRecordsRequest, context: CallContext
    ) -> pb.ForgetLostRecordsResponse:
        group_id, topics = request.group_id, frozenset(request.topics)
        READ_GROUP.require(group_id)
        reply = await self._existing(group_id).ask(
            lambda reply_id: ForgetLosses(reply_id=reply_id, group_id=group_id, topics=topics)
        )
        assert isinstance(reply, ForgetLossesReply), reply
        return pb.ForgetLostRecordsResponse(
            error_code=reply.error, error_message=text_of(reply.error), lost_count=reply.lost_count
        )

    async def tell_log_starts(self, request: pb.TellLogStartsRequest, context: CallContext) -> pb.TellLogStartsResponse:
        starts = {
            TopicPartition(partition.topic, partition.partition): partition.log_start_offset
            for partition in request.partitions
        }
        await self._watch.on_log_starts(starts)
        return pb.TellLogStartsResponse()


def _offset(committed: Committed | None) -> int:
    return _NO_COMMIT if committed is None else committed.offset


def _lag(lag: PartitionLag) -> pb.PartitionLag:
    unread, committed = lag.unread, lag.committed
    known: dict[str, Any] = {}
    if committed is not None:
        known = {"committed_offset": committed.offset, "committed_ms": committed.commit_ms}
    if not unread.error_code:
        known |= {
            "log_start_offset": unread.log_start_offset,
            "high_watermark": unread.high_watermark,
            "last_stable_offset": unread.last_stable_offset,
        }
    if lag.lag is not None:
        known["next_deletion_ms"] = unread.next_deletion_ms
    if unread.held_by is not None:
        known |= {
            "held_by_producer_id": unread.held_by.producer_id,
            "held_since_ms": unread.held_by.first_timestamp_ms,
        }
    return pb.PartitionLag(
        topic=lag.partition.topic,
        partition=lag.partition.partition,
        error_code=unread.error_code,
        error_message=unread.error_message,
        unchanged_since_ms=lag.unchanged_since_ms,
        lag=lag.lag,
        behind_ms=lag.behind_ms,
        lost_count=lag.lost_count,
        catch_up_ms=lag.catch_up_ms,
        commit_interval_ms=lag.commit_interval_ms,
        consumed_per_s=lag.consumed_per_s,
        consumed_before_per_s=lag.consumed_before_per_s,
        produced_per_s=lag.produced_per_s,
        produced_before_per_s=lag.produced_before_per_s,
        **known,
    )
