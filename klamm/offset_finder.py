"""ListOffsets over the whole cluster: each partition's question goes to its leader.

Timestamps are milliseconds since the epoch or one of klamm.model's EARLIEST, LATEST and MAX_TIMESTAMP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from klamm.client import KlammClient
from klamm.errors import BrokerError, ErrorCode, raise_for
from klamm.model import TopicPartition
from klamm.offsets import OffsetAndTimestamp
from klamm.wire.v1 import broker_pb2

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class OffsetFinder:
    """`isolation_level`: whether "latest" is the high watermark (0) or the last stable offset (1)."""

    def __init__(self, client: KlammClient, isolation_level: int = READ_UNCOMMITTED) -> None:
        self._client = client
        self._isolation_level = isolation_level

    async def find(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The first offset at or after each time; an offset of -1 means that no record is that late.

        Leaders that moved or do not answer are tried again until `timeout_ms` is over; then, and for any
        other outcome, raises the partition's error."""
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        await self._client.retrying(lambda: self.ask_once(timestamps, found), timeout_ms=timeout_ms)
        return found

    async def ask_once(
        self, timestamps: Mapping[TopicPartition, int], found: dict[TopicPartition, OffsetAndTimestamp]
    ) -> None:
        """One round for what is not in `found` yet, which takes in every answer; then raises the first error."""
        missing = {tp: at for tp, at in timestamps.items() if tp not in found}
        await self._know_leaders(missing)
        errors: list[BaseException] = []
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for tp, timestamp_ms in missing.items():
            try:
                by_leader.setdefault(self._leader(tp), {})[tp] = timestamp_ms
            except BrokerError as error:
                errors.append(error)
        asked = (self._ask(node_id, of_node, found) for node_id, of_node in by_leader.items())
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        errors += [outcome for outcome in outcomes if outcome is not None]
        if errors:
            raise errors[0]

    async def _know_leaders(self, wanted: Mapping[TopicPartition, int]) -> None:
        unknown = {tp.topic for tp in wanted if self._client.cluster.leader_of(tp) is None}
        if unknown:
            await self._client.refresh_metadata(unknown)

    def _leader(self, tp: TopicPartition) -> int:
        cluster = self._client.cluster
        leader = cluster.leader_of(tp)
        if leader is not None:
            return leader.node_id
        raise missing_leader_error(cluster.topic_errors.get(tp.topic), cluster.partition_count(tp.topic), tp)

    async def _ask(
        self,
        node_id: int,
        timestamps: Mapping[TopicPartition, int],
        found: dict[TopicPartition, OffsetAndTimestamp],
    ) -> None:
        """Adds to `found`; then raises the first partition's error, if any."""
        partitions = [
            broker_pb2.ListOffsetsPartition(
                topic=tp.topic,
                partition=tp.partition,
                timestamp_ms=timestamp_ms,
                current_leader_epoch=self._client.cluster.leader_epoch_of(tp),
            )
            for tp, timestamp_ms in timestamps.items()
        ]
        request = broker_pb2.ListOffsetsRequest(isolation_level=self._isolation_level, partitions=partitions)
        response = await self._client.broker(node_id).list_offsets(request)
        for each in response.partitions:
            if not each.error_code:
                tp = TopicPartition(each.topic, each.partition)
                found[tp] = OffsetAndTimestamp(each.offset, each.timestamp_ms, each.leader_epoch)
        for each in response.partitions:
            raise_for(each.error_code, f"{each.topic}-{each.partition}: {each.error_message}")


def missing_leader_error(topic_error: ErrorCode | None, partition_count: int | None, tp: TopicPartition) -> BrokerError:
    """Why there is nobody to ask about `tp`."""
    if topic_error is not None:
        return topic_error.exception(f"topic {tp.topic!r}")
    if partition_count is not None and tp.partition >= partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.exception(
            f"{tp}: topic {tp.topic!r} has {partition_count} partitions"
        )
    return ErrorCode.LEADER_NOT_AVAILABLE.exception(f"{tp} has no leader")
