"""Asks the leaders of partitions for the first offsets of their logs."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection
from typing import Final

from klamm.errors import KlammError
from klamm.model import EARLIEST_TIMESTAMP, TopicPartition
from klamm.wire.v1.broker_pb2 import ListOffsetsPartition, ListOffsetsRequest
from klamm.wire.v1.broker_rpc import BrokerStub
from klamm_server.rpc.broker_channels import BrokerChannels

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 2_000
"""A partition whose leader does not answer in time must not keep a group from its other partitions."""


class LogStarts:
    """Asks for first offsets over the connections to brokers."""

    def __init__(self, brokers: BrokerChannels) -> None:
        self._brokers = brokers

    async def of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition. It is 0, where logs begin, if no leader answers in time."""
        by_leader: defaultdict[BrokerStub, list[TopicPartition]] = defaultdict(list)
        for partition in partitions:
            leader = self._brokers.leader_of(*partition)
            if leader is not None:
                by_leader[leader].append(partition)
        answers = await asyncio.gather(*(_ask(leader, asked) for leader, asked in by_leader.items()))
        return dict.fromkeys(partitions, 0) | {partition: start for answer in answers for partition, start in answer}


async def _ask(leader: BrokerStub, partitions: Collection[TopicPartition]) -> list[tuple[TopicPartition, int]]:
    request = ListOffsetsRequest(
        partitions=[
            ListOffsetsPartition(
                topic=partition.topic,
                partition=partition.partition,
                timestamp_ms=EARLIEST_TIMESTAMP,
                current_leader_epoch=-1,
            )
            for partition in partitions
        ]
    )
    try:
        response = await leader.list_offsets(request, timeout_ms=TIMEOUT_MS)
    except KlammError as error:
        log.info("could not ask for the first offsets of %d partitions reason=%s", len(partitions), error)
        return []
    return [
        (TopicPartition(partition.topic, partition.partition), partition.offset)
        for partition in response.partitions
        if partition.offset >= 0
    ]
