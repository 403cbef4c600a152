"""Decodes the servers that a controller describes."""

from __future__ import annotations

from collections.abc import Iterable

from klamm.admin.types.cluster import ClusterDescription, ServerDescription
from klamm.wire.v1 import common_pb2, controller_pb2


def cluster_description(message: controller_pb2.DescribeClusterResponse) -> ClusterDescription:
    return ClusterDescription(
        cluster_id=message.cluster_id,
        controller_id=message.controller_id,
        controllers=_servers(message.controllers),
        brokers=_servers(message.brokers),
        coordinators=_servers(message.coordinators),
        metadata_end_index=message.metadata_end_index,
    )


def _servers(nodes: Iterable[common_pb2.Node]) -> tuple[ServerDescription, ...]:
    return tuple(
        ServerDescription(
            node_id=node.node_id,
            host=node.endpoint.host,
            port=node.endpoint.port,
            rack=node.rack,
            fenced=node.fenced,
            in_controlled_shutdown=node.in_controlled_shutdown,
            kafka_host=node.kafka_endpoint.host,
            kafka_port=node.kafka_endpoint.port,
        )
        for node in nodes
    )
