"""Which replicas here are not to lead or to be in sync while another replica can, and what the controller is to hear.

Anybody here may have a reason why a replica should `resign`; the replica does not resume before the last reason is
gone. What the controller knows is read from the metadata, so a wish is repeated until they have it: after a call
without an answer, one that overtook another, or when the broker has registered again. Pure.

A replica that has resigned still leads, and is in sync, if no other in-sync replica can lead instead. Code that waits
for it to be out of use looks at its partition in the metadata: `is_released`.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Hashable, Iterable

from klamm.wire.v1.controller_pb2 import ResignedReplicas, ResignReplicasRequest
from klamm_server.metadata.entities import PartitionImage
from klamm_server.metadata.image import MetadataImage

ReplicaKey = tuple[bytes, int]
"""Topic id and partition number."""


class Resignations:
    """The wishes of one broker."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._reasons: dict[ReplicaKey, set[Hashable]] = {}
        self._resumed: set[ReplicaKey] = set()
        """The controller may not know yet that they have resumed."""

    def __contains__(self, key: ReplicaKey) -> bool:
        return key in self._reasons

    def __len__(self) -> int:
        return len(self._reasons)

    def resign(self, key: ReplicaKey, reason: Hashable) -> bool:
        """Whether it had no reason before."""
        is_new = key not in self._reasons
        self._reasons.setdefault(key, set()).add(reason)
        self._resumed.discard(key)
        return is_new

    def resume(self, key: ReplicaKey, reason: Hashable) -> bool:
        """The reason is gone, if it was there; whether it was the last one."""
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
        """Notes that the replica's partition has changed. Returns whether the next request must repeat that the
        replica has resumed, because a late call made it resign."""
        is_mistaken = self._broker_id in partition.resigned_replicas and key not in self._reasons
        if is_mistaken:
            self._resumed.add(key)
        return is_mistaken

    def resigned_for(self, reason: Hashable) -> list[ReplicaKey]:
        """The replicas that have that reason."""
        return [key for key, reasons in self._reasons.items() if reason in reasons]

    def next_request(self, image: MetadataImage, *, broker_epoch: int) -> ResignReplicasRequest | None:
        """What the controller does not know, as far as the metadata tell; None: nothing. Its own leaderships first."""
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
        """The controller has done what the request asks for."""
        for topic in request.resumed:
            self._resumed.difference_update((topic.topic_id, number) for number in topic.partitions)


def is_released(partition: PartitionImage, broker_id: int) -> bool:
    """Whether the cluster does not need a broker's replica. It is neither in sync, so it cannot lead, nor an eligible
    leader replica."""
    return broker_id not in partition.isr and broker_id not in partition.elr


def _partition(key: ReplicaKey, image: MetadataImage) -> PartitionImage | None:
    topic_id, number = key
    topic = image.topics_by_id.get(uuid.UUID(bytes=topic_id))
    return topic.partitions[number] if topic is not None and number < len(topic.partitions) else None


def _by_topic(keys: Iterable[ReplicaKey]) -> list[ResignedReplicas]:
    topics: defaultdict[bytes, list[int]] = defaultdict(list)
    for topic_id, number in keys:
        topics[topic_id].append(number)
    return [ResignedReplicas(topic_id=topic_id, partitions=numbers) for topic_id, numbers in topics.items()]
