"""Sends ListOffsets to the leader of each partition in the cluster.

Timestamps are milliseconds since the epoch or one of klamm.model's EARLIEST, LATEST and MAX_TIMESTAMP."""

from __future__ import annotations

from collections.abc import Mapping

from klamm.cluster.client import KlammClient
from klamm.cluster.leader_calls import ask_leaders
from klamm.errors import raise_for
from klamm.model import TopicPartition
from klamm.offsets import OffsetAndTimestamp
from klamm.wire.v1 import broker_pb2

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class OffsetFinder:
    """Looks up offsets by timestamp. With `isolation_level` 0 the latest offset is the high watermark, with 1 the last
    stable offset."""

    def __init__(self, client: KlammClient, isolation_level: int = READ_UNCOMMITTED) -> None:
        self._client = client
        self._isolation_level = isolation_level

    async def find(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Returns the first offset at or after each time. The offset is -1 if there is no record that late.

        Retries until `timeout_ms` is over if a leader has moved or does not answer. After that, and for any other
        error, raises the partition's error."""
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        await self._client.retrying(lambda: self.ask_once(timestamps, found), timeout_ms=timeout_ms)
        return found

    async def ask_once(
        self, timestamps: Mapping[TopicPartition, int], found: dict[TopicPartition, OffsetAndTimestamp]
    ) -> None:
        """Asks once for the offsets that are not in `found` yet. Adds every answer to `found`, then raises the first
        error."""
        missing = {tp: at for tp, at in timestamps.items() if tp not in found}

        async def ask(node_id: int, of_node: dict[TopicPartition, int]) -> None:
            await self._ask(node_id, of_node, found)

        await ask_leaders(self._client, missing, ask)

    async def _ask(
        self,
        node_id: int,
        timestamps: Mapping[TopicPartition, int],
        found: dict[TopicPartition, OffsetAndTimestamp],
    ) -> None:
        """Sends one request to a broker and adds the answers to `found`. Then raises the error of the first failed
        partition, if any."""
        leader_epoch_of = self._client.cluster.leader_epoch_of
        partitions = [
            broker_pb2.ListOffsetsPartition(
                topic=tp.topic,
                partition=tp.partition,
                timestamp_ms=timestamp_ms,
                current_leader_epoch=leader_epoch_of(tp),
            )
            for tp, timestamp_ms in timestamps.items()
        ]
        request = broker_pb2.ListOffsetsRequest(isolation_level=self._isolation_level, partitions=partitions)
        response = await self._client.broker(node_id).list_offsets(request)
        refused = []
        for partition in response.partitions:
            if partition.error_code:
                refused.append(partition)
            else:
                tp = TopicPartition(partition.topic, partition.partition)
                found[tp] = OffsetAndTimestamp(partition.offset, partition.timestamp_ms, partition.leader_epoch)
        for partition in refused[:1]:
            raise_for(partition.error_code, f"{partition.topic}-{partition.partition}: {partition.error_message}")
