"""Sends OffsetForLeaderEpoch to the leaders of partitions, to find where a leader epoch ends in their logs.

If a consumer has read records of that epoch beyond its end, these records are no longer in the log (KIP-320)."""

from __future__ import annotations

from collections.abc import Mapping

from klamm.cluster.client import KlammClient
from klamm.cluster.leader_calls import ask_leaders
from klamm.errors import ErrorCode, raise_for
from klamm.model import TopicPartition
from klamm.offsets import EpochEnd
from klamm.wire.v1 import broker_pb2


class EpochFinder:
    """Finds the end offsets of leader epochs. Each client has one."""

    def __init__(self, client: KlammClient) -> None:
        self._client = client

    async def ask_once(self, epochs: Mapping[TopicPartition, int], found: dict[TopicPartition, EpochEnd]) -> None:
        """Asks once for the end of the leader epoch of each partition. Adds every answer to `found`, then raises the
        first error.

        If the metadata know no leader epoch as new as the one asked for, sends no query for this partition. It then
        raises UNKNOWN_LEADER_EPOCH, which refreshes the metadata."""

        async def ask(node_id: int, of_node: dict[TopicPartition, int]) -> None:
            await self._ask(node_id, of_node, found)

        await ask_leaders(self._client, epochs, ask)

    async def _ask(
        self, node_id: int, epochs: dict[TopicPartition, int], found: dict[TopicPartition, EpochEnd]
    ) -> None:
        current = {tp: self._client.cluster.leader_epoch_of(tp) for tp in epochs}
        # A deposed leader that does not know its successor yet would answer as if the records were truncated.
        ahead = [tp for tp, epoch in epochs.items() if epoch > current[tp]]
        queries = [
            broker_pb2.EpochQuery(
                topic=tp.topic, partition=tp.partition, current_leader_epoch=current[tp], leader_epoch=epoch
            )
            for tp, epoch in epochs.items()
            if tp not in ahead
        ]
        if queries:
            request = broker_pb2.OffsetForLeaderEpochRequest(partitions=queries)
            response = await self._client.broker(node_id).offset_for_leader_epoch(request)
            for partition in response.partitions:
                if not partition.error_code:
                    tp = TopicPartition(partition.topic, partition.partition)
                    found[tp] = EpochEnd(partition.leader_epoch, partition.end_offset, current[tp])
            for partition in response.partitions:
                raise_for(partition.error_code, f"{partition.topic}-{partition.partition}: {partition.error_message}")
        if ahead:
            raise ErrorCode.UNKNOWN_LEADER_EPOCH.exception(
                f"{ahead[0]}: records of leader epoch {epochs[ahead[0]]} were read; the newest known is"
                f" {current[ahead[0]]}"
            )
