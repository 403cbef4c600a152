"""The call about the groups for which retention waits: LowestOffsets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm.wire.calls import CallContext
from klamm.wire.v1.coordinator_pb2 import HeldTopic, LowestOffset, LowestOffsetsRequest, LowestOffsetsResponse
from klamm_coordinator.group_shard.events import ConfirmOwner, ConfirmOwnerReply
from klamm_coordinator.group_shard.rules import GroupRules
from klamm_coordinator.io.shard_host import ShardHost
from klamm_coordinator.io.shards import Shards
from klamm_coordinator.offsets.lowest_offsets import LowestOffsets, TopicHold
from klamm_server.runtime.sliced_work import map_in_slices

log = logging.getLogger(__name__)

PARTITIONS_MAX: Final = 1_000
"""The most partitions of one request, which bounds the answer."""
GROUP_ID_MAX: Final = 249
"""The most characters of a group id in the answer, which is only for people."""
LOOKUPS_PER_TURN: Final = 5_000
"""The number of offsets that are looked up before the event loop runs other work."""


class HoldsRpc:
    """Answers LowestOffsets from the shards that this coordinator owns."""

    def __init__(self, shards: Shards[GroupRules]) -> None:
        self._shards = shards

    async def lowest_offsets(self, request: LowestOffsetsRequest, context: CallContext) -> LowestOffsetsResponse:
        """Returns the lowest offsets in the shards that answered. Other shards are not in the answer."""
        partition_count = sum(len(topic.partitions) for topic in request.topics)
        if partition_count > PARTITIONS_MAX:
            return LowestOffsetsResponse(
                error_code=ErrorCode.INVALID_REQUEST,
                error_message=f"LowestOffsets of {partition_count} partitions; expected at most {PARTITIONS_MAX}",
            )
        found = LowestOffsets(map(_hold_of, request.topics))
        groups_per_turn = max(1, LOOKUPS_PER_TURN // max(1, partition_count))
        wanted = set(request.shards)
        owned = [host for host in self._shards if host.number in wanted]
        searched = []
        for host, rules in zip(owned, await asyncio.gather(*map(_confirmed, owned)), strict=True):
            if rules is not None:
                await self._search(host.number, rules, found, groups_per_turn)
                searched.append(host.number)
        return LowestOffsetsResponse(shards=searched, offsets=_offsets_of(found))

    async def _search(self, number: int, rules: GroupRules, found: LowestOffsets, groups_per_turn: int) -> None:
        """Adds the groups of a shard."""
        offsets = rules.state.offsets
        named = (group_id for group_id in found.named_groups if self._shards.number_of(group_id) == number)
        group_ids = dict.fromkeys([*named, *(offsets.group_ids() if found.wants_all_groups else ())])
        await map_in_slices(
            lambda group_id: found.add(group_id, offsets.of_group(group_id), rules.releases.of_group(group_id)),
            group_ids,
            per_turn=groups_per_turn,
        )


async def _confirmed(host: ShardHost[GroupRules]) -> GroupRules | None:
    """Returns the rules of a shard, or None if this coordinator cannot prove that it owns the shard.

    A coordinator that was frozen may have lost the shard without knowing it, and its offsets may be old."""
    try:
        reply = await host.ask(lambda reply_id: ConfirmOwner(reply_id=reply_id))
        assert isinstance(reply, ConfirmOwnerReply), reply
        return None if reply.error else host.rules
    except BrokerError as error:
        log.debug("could not search shard %d for LowestOffsets, error=%s", host.number, error.code.name)
        return None


def _hold_of(topic: HeldTopic) -> TopicHold:
    return TopicHold(
        partitions=[TopicPartition(topic.topic, partition) for partition in topic.partitions],
        group_ids=frozenset(topic.group_ids),
        all_groups=topic.all_groups,
        topic_id=topic.topic_id,
    )


def _offsets_of(found: LowestOffsets) -> Iterable[LowestOffset]:
    for partition, (offset, group_id) in found.lowest.items():
        yield LowestOffset(
            topic=partition.topic, partition=partition.partition, offset=offset, group_id=group_id[:GROUP_ID_MAX]
        )
