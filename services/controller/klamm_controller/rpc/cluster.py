"""The calls of the Admin service about the cluster and its servers."""

from __future__ import annotations

from klamm.wire.calls import CallContext
from klamm.wire.v1.common_pb2 import Node
from klamm.wire.v1.controller_pb2 import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from klamm_controller.metadata.brokers import handle_unregister_broker
from klamm_controller.rpc.gateway import Gateway
from klamm_server.metadata.entities import BrokerImage, CoordinatorImage
from klamm_server.net.listeners import SecurityProtocol, endpoint, first, own_listener


class ClusterRpcs:
    """Answers DescribeCluster and UnregisterBroker. A server that the caller cannot dial is described without an
    endpoint."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def describe_cluster(self, request: DescribeClusterRequest, context: CallContext) -> DescribeClusterResponse:
        image = self._gateway.controller.committed
        return DescribeClusterResponse(
            cluster_id=image.cluster_id,
            controller_id=self._gateway.quorum.leader_id,
            controllers=self._gateway.quorum_for_caller(),
            brokers=[_broker_node(image.brokers[broker_id]) for broker_id in sorted(image.brokers)],
            coordinators=[
                _coordinator_node(image.coordinators[coordinator_id]) for coordinator_id in sorted(image.coordinators)
            ],
            metadata_end_index=image.end_index,
        )

    async def unregister_broker(
        self, request: UnregisterBrokerRequest, context: CallContext
    ) -> UnregisterBrokerResponse:
        decided = self._gateway.controller.submit(
            "UnregisterBroker", lambda image: handle_unregister_broker(request, image)
        )
        return await self._gateway.change(decided, UnregisterBrokerResponse)


def _broker_node(broker: BrokerImage) -> Node:
    return Node(
        node_id=broker.broker_id,
        endpoint=endpoint(own_listener(broker.listeners)),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        kafka_endpoint=endpoint(first(broker.listeners, SecurityProtocol.KAFKA)),
    )


def _coordinator_node(coordinator: CoordinatorImage) -> Node:
    return Node(
        node_id=coordinator.coordinator_id,
        endpoint=endpoint(own_listener(coordinator.listeners)),
        fenced=coordinator.fenced,
    )
