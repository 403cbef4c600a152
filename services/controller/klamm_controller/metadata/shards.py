"""Assigns the shards of the internal topics to coordinators.

`assignment_records` reads an image and returns the changes after which

- every shard of an internal topic that exists is owned by a live coordinator, or has no owner if none is live;
- for each topic, coordinators own equally many shards, to within one;
- only the necessary shards have moved (an owner keeps its lowest shards up to its share).

These records are in the same batch as the change of the live coordinators or the creation of the topic. Every change of
owner raises the writer epoch, so brokers refuse the later appends of the previous owner. The writer epoch is a producer
epoch on the wire, a signed 16-bit number. After the last epoch, the shard gets a new producer id, as a transactional
producer does in Kafka (KIP-360). Its owners then fence the former id with the epoch kept in reserve. The coordinator
epoch, which transaction markers carry, has 32 bits and keeps growing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from klamm.model import SHARD_TOPICS
from klamm.wire.v1.metadata_pb2 import MetadataRecord, ShardAssignmentRecord
from klamm_controller.metadata.producer_ids import reserve_producer_ids
from klamm_server.metadata.entities import NO_COORDINATOR, ShardImage
from klamm_server.metadata.image import MetadataImage

WRITER_EPOCH_MAX = (1 << 15) - 2
"""The greatest writer epoch. Kafka keeps the next one in reserve for fencing (Short.MAX_VALUE - 1)."""


def assignment_records(image: MetadataImage) -> list[MetadataRecord]:
    """Returns the records that restore the rules of this module, or an empty list if they hold."""
    live = [coordinator.coordinator_id for coordinator in image.live_coordinators()]
    moves: list[tuple[str, int, int]] = []
    for name in sorted(SHARD_TOPICS & image.topics_by_name.keys()):
        owners = _owners(image, name)
        wanted = balance(owners, live)
        moves += [
            (name, shard, owner)
            for shard, owner in enumerate(wanted)
            if owner != owners[shard] or (name, shard) not in image.shards
        ]
    return _records(image, moves)


def balance(owners: Sequence[int], live: Sequence[int]) -> list[int]:
    """Returns the new owner of each shard. Each live coordinator gets an even share, and keeps as many of its own
    shards as the share allows.

    `live` is sorted. The larger shares go to the coordinators that own the most shards now."""
    if not live:
        return [NO_COORDINATOR] * len(owners)
    shares = _shares(owners, live)
    kept = []
    for owner in owners:
        keeps = shares.get(owner, 0) > 0
        kept.append(owner if keeps else NO_COORDINATOR)
        if keeps:
            shares[owner] -= 1
    takers = [coordinator for coordinator in live for _ in range(shares[coordinator])]
    return [owner if owner != NO_COORDINATOR else takers.pop(0) for owner in kept]


def _shares(owners: Sequence[int], live: Sequence[int]) -> dict[int, int]:
    share, remainder = divmod(len(owners), len(live))
    by_load = sorted(live, key=lambda coordinator: (-owners.count(coordinator), coordinator))
    return {coordinator: share + (rank < remainder) for rank, coordinator in enumerate(by_load)}


def _owners(image: MetadataImage, topic: str) -> list[int]:
    count = len(image.topics_by_name[topic].partitions)
    assigned = [image.shards.get((topic, shard)) for shard in range(count)]
    return [NO_COORDINATOR if shard is None else shard.coordinator_id for shard in assigned]


def _records(image: MetadataImage, moves: Sequence[tuple[str, int, int]]) -> list[MetadataRecord]:
    next_producer_id = image.next_producer_id
    records = []
    for topic, shard, owner in moves:
        assigned = _next_owner(image.shards.get((topic, shard)), owner, next_producer_id)
        next_producer_id += assigned.producer_id == next_producer_id
        records.append(
            MetadataRecord(
                shard_assignment=ShardAssignmentRecord(
                    topic=topic,
                    shard=shard,
                    coordinator_id=assigned.coordinator_id,
                    producer_id=assigned.producer_id,
                    writer_epoch=assigned.writer_epoch,
                    coordinator_epoch=assigned.coordinator_epoch,
                    former_producer_id=assigned.former_producer_id,
                )
            )
        )
    if taken := next_producer_id - image.next_producer_id:
        records.insert(0, reserve_producer_ids(image, taken))
    return records


def _next_owner(before: ShardImage | None, owner: int, free_producer_id: int) -> ShardImage:
    if before is None:
        return ShardImage(coordinator_id=owner, producer_id=free_producer_id, writer_epoch=0)
    following = replace(before, coordinator_id=owner, coordinator_epoch=before.coordinator_epoch + 1)
    if before.writer_epoch < WRITER_EPOCH_MAX:
        return replace(following, writer_epoch=before.writer_epoch + 1)
    return replace(following, producer_id=free_producer_id, writer_epoch=0, former_producer_id=before.producer_id)
