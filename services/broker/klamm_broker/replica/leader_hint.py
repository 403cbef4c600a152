"""The leader of a partition that this broker does not lead, for answers that refuse a request (KIP-951)."""

from __future__ import annotations

from typing import NamedTuple

from klamm.model import TopicPartition
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.metadata.entities import NO_LEADER


class LeaderHint(NamedTuple):
    """The leader of a partition as far as this broker knows (KIP-951); -1: unknown."""

    leader: int
    leader_epoch: int


_NO_HINT = LeaderHint(-1, -1)


def leader_hint(replicas: ReplicaManager, topic_partition: TopicPartition) -> LeaderHint:
    """The hint for answers that refuse because another broker leads, or this one under a newer epoch."""
    replica = replicas.get(topic_partition)
    if replica is not None and replica.leader != NO_LEADER:
        return LeaderHint(replica.leader, replica.leader_epoch)
    found = replicas.image.partition(topic_partition.topic, topic_partition.partition)
    # This broker refuses although its metadata name it: it is stopping. Nobody better is known yet.
    if found is None or found.leader in (NO_LEADER, replicas.broker_id):
        return _NO_HINT
    return LeaderHint(found.leader, found.leader_epoch)
