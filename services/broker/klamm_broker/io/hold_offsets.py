"""Asks the coordinators for the lowest committed offsets of the groups for which retention waits.

The broker keeps no offsets between two checks of retention, so that no hold outlives its group. A partition without a
complete answer gets None: a coordinator is down, or a shard moves. Then retention waits until a bound is reached.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from klamm.errors import BrokerError, ErrorCode
from klamm.model import GROUP_METADATA_TOPIC, TopicPartition
from klamm.rpc.transport import Transport
from klamm.wire.v1.coordinator_pb2 import HeldTopic, LowestOffsetsRequest, LowestOffsetsResponse
from klamm.wire.v1.coordinator_rpc import CoordinatorStub
from klamm_broker.log.cleaning.hold_groups import ALL_GROUPS, ShardAnswer, lowest_of, shards_of
from klamm_broker.log.cleaning.retention_hold import NO_GROUP, LowOffset
from klamm_server.metadata.image import MetadataImage
from klamm_server.net.listeners import Listener
from klamm_server.rpc.coordinator_channels import CoordinatorChannels
from klamm_server.runtime.clock import Clock

log = logging.getLogger(__name__)

PARTITIONS_PER_REQUEST: Final = 1_000
"""The most partitions that a coordinator accepts in one request."""

Groups = tuple[str, ...]
"""The value of `retention.hold.groups`."""


class HoldOffsets:
    """Asks the owners of the shards of `__consumer_offsets`. `close` ends the connections."""

    def __init__(
        self,
        transport: Transport,
        image: Callable[[], MetadataImage],
        own: Listener,
        clock: Clock,
        *,
        timeout_ms: int,
    ) -> None:
        self._image = image
        self._clock = clock
        self._channels = CoordinatorChannels(transport, image, own)
        self._timeout_ms = timeout_ms

    async def close(self) -> None:
        await self._channels.close()

    async def lowest(self, holds: Mapping[TopicPartition, Groups]) -> dict[TopicPartition, LowOffset | None]:
        """Returns the lowest committed offset of each partition's groups, or None if it cannot be known now.

        All requests together take at most `timeout_ms`. Partitions whose turn does not come until then have no
        answer."""
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        topic = self._image().topic(GROUP_METADATA_TOPIC)
        shard_count = 0 if topic is None else len(topic.partitions)
        answers: defaultdict[TopicPartition, list[ShardAnswer]] = defaultdict(list)
        wanted = frozenset().union(*(shards_of(groups, shard_count) for groups in holds.values()))
        for part in _parts(holds):
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                break
            asked = (self._ask(stub, shards, part, left_ms) for stub, shards in self._owners(wanted).items())
            for answer in await asyncio.gather(*asked):
                for partition, shard_answer in answer.items():
                    answers[partition].append(shard_answer)
        return {partition: lowest_of(groups, shard_count, answers[partition]) for partition, groups in holds.items()}

    def _owners(self, shards: frozenset[int]) -> dict[CoordinatorStub, list[int]]:
        """Returns the shards that each coordinator owns. Shards without an owner are left out."""
        owners: defaultdict[CoordinatorStub, list[int]] = defaultdict(list)
        for shard in sorted(shards):
            stub = self._channels.owner_of(GROUP_METADATA_TOPIC, shard)
            if stub is not None:
                owners[stub].append(shard)
        return owners

    async def _ask(
        self, stub: CoordinatorStub, shards: list[int], holds: Mapping[TopicPartition, Groups], timeout_ms: int
    ) -> dict[TopicPartition, ShardAnswer]:
        """Returns the answer of one coordinator for each partition. It is empty if the call fails."""
        request = LowestOffsetsRequest(shards=shards, topics=self._topics_of(holds))
        try:
            response = await stub.lowest_offsets(request, timeout_ms=timeout_ms)
        except BrokerError as error:
            log.info("could not ask for the offsets that hold retention, partitions=%d: %s", len(holds), error)
            return {}
        if response.error_code:
            code = ErrorCode.of(response.error_code).name
            log.warning("a coordinator refused LowestOffsets, error=%s: %s", code, response.error_message)
            return {}
        return _answers_of(response, holds)

    def _topics_of(self, holds: Mapping[TopicPartition, Groups]) -> list[HeldTopic]:
        partitions: defaultdict[tuple[str, Groups], list[int]] = defaultdict(list)
        for partition, groups in holds.items():
            partitions[partition.topic, groups].append(partition.partition)
        return [self._topic_of(topic, groups, numbers) for (topic, groups), numbers in partitions.items()]

    def _topic_of(self, name: str, groups: Groups, partitions: Sequence[int]) -> HeldTopic:
        topic = self._image().topic(name)
        return HeldTopic(
            topic=name,
            partitions=partitions,
            group_ids=[group_id for group_id in groups if group_id != ALL_GROUPS],
            all_groups=ALL_GROUPS in groups,
            topic_id=b"" if topic is None else topic.topic_id.bytes,
        )


def _answers_of(
    response: LowestOffsetsResponse, holds: Mapping[TopicPartition, Groups]
) -> dict[TopicPartition, ShardAnswer]:
    lowest = {
        TopicPartition(offset.topic, offset.partition): LowOffset(offset.offset, offset.group_id)
        for offset in response.offsets
    }
    shards = frozenset(response.shards)
    return {partition: ShardAnswer(shards, lowest.get(partition, NO_GROUP)) for partition in holds}


def _parts(holds: Mapping[TopicPartition, Groups]) -> Iterator[dict[TopicPartition, Groups]]:
    """Yields the partitions in parts that fit into a request."""
    rest = iter(holds.items())
    while part := dict(islice(rest, PARTITIONS_PER_REQUEST)):
        yield part
