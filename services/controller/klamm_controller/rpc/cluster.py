"""Admin: the cluster and its servers."""

from __future__ import annotations

from typing import Any

from klamm.wire.v1.common_pb2 import Endpoint, Node
from klamm.wire.v1.controller_pb2 import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from klamm_controller.metadata.brokers import handle_unregister_broker
from klamm_controller.rpc.gateway import Gateway
from klamm_server.metadata.image import BrokerImage, CoordinatorImage


class ClusterRpcs:
    """DescribeCluster, UnregisterBroker."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def describe_cluster(self, request: DescribeClusterRequest, context: Any) -> DescribeClusterResponse:
        controller = self._gateway.controller
        image = controller.committed
        return DescribeClusterResponse(
            cluster_id=image.cluster_id,
            controller_id=controller.leader_id,
            controllers=self._gateway.quorum(),
            brokers=[_broker_node(image.brokers[broker_id]) for broker_id in sorted(image.brokers)],
            coordinators=[
                _coordinator_node(image.coordinators[coordinator_id]) for coordinator_id in sorted(image.coordinators)
            ],
            metadata_end_index=image.end_index,
        )

    async def unregister_broker(self, request: UnregisterBrokerRequest, context: Any) -> UnregisterBrokerResponse:
        decided = self._gateway.controller.submit(
            "UnregisterBroker", lambda image: handle_unregister_broker(request, image)
        )
        return await self._gateway.answer(context, decided, UnregisterBrokerResponse)


def _broker_node(broker: BrokerImage) -> Node:
    return Node(
        node_id=broker.broker_id,
        endpoint=Endpoint(host=broker.host, port=broker.port),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        kafka_endpoint=Endpoint(host=broker.kafka_host, port=broker.kafka_port) if broker.kafka_port else None,
    )


def _coordinator_node(coordinator: CoordinatorImage) -> Node:
    return Node(
        node_id=coordinator.coordinator_id,
        endpoint=Endpoint(host=coordinator.host, port=coordinator.port),
        fenced=coordinator.fenced,
    )
