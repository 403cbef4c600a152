"""Finds the leader of a partition that this broker does not lead, for answers that refuse a request (KIP-951)."""

from __future__ import annotations

from typing import NamedTuple

from klamm.model import TopicPartition
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.metadata.entities import NO_LEADER


class LeaderHint(NamedTuple):
    """The leader of a partition as far as this broker knows, -1 if unknown (KIP-951)."""

    leader: int
    leader_epoch: int


_NO_HINT = LeaderHint(-1, -1)


def leader_hint(replicas: ReplicaManager, topic_partition: TopicPartition) -> LeaderHint:
    """Returns the hint for an answer that refuses a request, because another broker leads or the leader epoch is
    newer."""
    replica = replicas.get(topic_partition)
    if replica is not None and replica.leader != NO_LEADER:
        return LeaderHint(replica.leader, replica.leader_epoch)
    found = replicas.image.partition(topic_partition.topic, topic_partition.partition)
    # If the metadata name this broker but it refuses, it is stopping. No other leader is known yet.
    if found is None or found.leader in (NO_LEADER, replicas.broker_id):
        return _NO_HINT
    return LeaderHint(found.leader, found.leader_epoch)
