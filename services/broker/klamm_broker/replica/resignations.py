"""Owns the reasons why replicas of this broker should neither lead nor be in sync, and builds the requests to the
controller.

Any part of the broker may have a reason for a replica to `resign`. The replica resumes when its last reason is gone.
The metadata show what the controller knows, so a request is repeated until the metadata contain it. This covers a call
without an answer, calls that overtake each other, and a new registration of the broker. Pure.

A replica that has resigned still leads and stays in sync if no other in-sync replica can lead.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Hashable, Iterable

from klamm.wire.v1.controller_pb2 import ResignedReplicas, ResignReplicasRequest
from klamm_server.metadata.entities import PartitionImage
from klamm_server.metadata.image import MetadataImage

ReplicaKey = tuple[bytes, int]
"""The topic id (16 bytes) and the partition number."""


class Resignations:
    """The reasons to resign of all replicas of one broker."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._reasons: dict[ReplicaKey, set[Hashable]] = {}
        self._resumed: set[ReplicaKey] = set()
        """Replicas that have resumed, where the controller may not know this yet."""

    def __contains__(self, key: ReplicaKey) -> bool:
        return key in self._reasons

    def __len__(self) -> int:
        return len(self._reasons)

    def resign(self, key: ReplicaKey, reason: Hashable) -> bool:
        """Adds a reason. Returns True if the replica had none before."""
        is_new = key not in self._reasons
        self._reasons.setdefault(key, set()).add(reason)
        self._resumed.discard(key)
        return is_new

    def resume(self, key: ReplicaKey, reason: Hashable) -> bool:
        """Removes the reason. Returns True if it was the replica's last one."""
        reasons = self._reasons.get(key)
        if reasons is None:
            return False
        reasons.discard(reason)
        if reasons:
            return False
        del self._reasons[key]
        self._resumed.add(key)
        return True

    def note(self, key: ReplicaKey, partition: PartitionImage) -> bool:
        """Notes that the replica's partition has changed. Returns True if the next request must repeat that the replica
        has resumed, because a late call made it resign."""
        is_mistaken = self._broker_id in partition.resigned_replicas and key not in self._reasons
        if is_mistaken:
            self._resumed.add(key)
        return is_mistaken

    def resigned_for(self, reason: Hashable) -> list[ReplicaKey]:
        """Returns the replicas that have resigned for that reason."""
        return [key for key, reasons in self._reasons.items() if reason in reasons]

    def next_request(self, image: MetadataImage, *, broker_epoch: int) -> ResignReplicasRequest | None:
        """Returns a request with all changes that the metadata do not show yet, or None. Replicas that lead come
        first."""
        unknown: list[tuple[bool, ReplicaKey]] = []
        for key in self._reasons:
            partition = _partition(key, image)
            if partition is None or self._broker_id not in partition.replicas:
                continue
            if self._broker_id not in partition.resigned_replicas:
                unknown.append((partition.leader != self._broker_id, key))
        if not unknown and not self._resumed:
            return None
        return ResignReplicasRequest(
            broker_id=self._broker_id,
            broker_epoch=broker_epoch,
            resigned=_by_topic(key for _, key in sorted(unknown)),
            resumed=_by_topic(sorted(self._resumed)),
        )

    def on_answer(self, request: ResignReplicasRequest) -> None:
        """Notes that the controller has applied the request."""
        for topic in request.resumed:
            self._resumed.difference_update((topic.topic_id, number) for number in topic.partitions)


def _partition(key: ReplicaKey, image: MetadataImage) -> PartitionImage | None:
    topic_id, number = key
    topic = image.topics_by_id.get(uuid.UUID(bytes=topic_id))
    return topic.partitions[number] if topic is not None and number < len(topic.partitions) else None


def _by_topic(keys: Iterable[ReplicaKey]) -> list[ResignedReplicas]:
    topics: defaultdict[bytes, list[int]] = defaultdict(list)
    for topic_id, number in keys:
        topics[topic_id].append(number)
    return [ResignedReplicas(topic_id=topic_id, partitions=numbers) for topic_id, numbers in topics.items()]
