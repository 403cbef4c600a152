"""The leader and its address in the answers of a broker that does not lead (KIP-951): tagged fields of Produce and
Fetch."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from klamm.kafka_types.writer import KafkaWriter
from klamm_broker.handlers.leader_hints import AnsweredPartition
from klamm_broker.kafka.listener_metadata import ListenerMetadata

NODE_ENDPOINTS_TAG: Final = 0
_LEADER: Final = struct.Struct(">iiB")
"""The leader's id, the leader epoch, and the number of tagged fields, 0."""


def leader_hint(tag: int, partition: AnsweredPartition) -> list[tuple[int, bytes]]:
    """Returns a partition's tagged field with its leader, for `KafkaWriter.tagged_fields`. Empty without a hint."""
    if not partition.error_code or partition.current_leader < 0:
        return []
    return [(tag, _LEADER.pack(partition.current_leader, partition.current_leader_epoch, 0))]


def node_endpoints(cluster: ListenerMetadata, partitions: Iterable[AnsweredPartition]) -> list[tuple[int, bytes]]:
    """Returns the answer's tagged field with the addresses of the leaders that its partitions name."""
    leaders = {
        partition.current_leader for partition in partitions if partition.error_code and partition.current_leader >= 0
    }
    nodes = [node for node in cluster.registered() if node.broker_id in leaders] if leaders else []
    if not nodes:
        return []
    writer = KafkaWriter(flexible=True)
    writer.array_size(len(nodes))
    for node in nodes:
        writer.int32(node.broker_id)
        writer.string(node.host)
        writer.int32(node.port)
        writer.nullable_string(node.rack or None)
        writer.tagged_fields()
    return [(NODE_ENDPOINTS_TAG, writer.value())]
