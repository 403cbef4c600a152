"""Tests that one server's key, or a powerful client's key, cannot speak for another server (`node.principals`).

Every call in which a server names itself is made with each of the other certificates.
"""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.message import Message

from klamm.wire.v1 import broker_pb2, controller_pb2, raft_pb2
from tests.support.canary_cluster import CanaryCluster
from tests.support.certificates import Stores, client, server, write_stores
from tests.support.every_rpc import Caller, every_rpc

RPCS = {rpc.path.rpartition("/")[2]: rpc for rpc in every_rpc()}
OF_BROKER: dict[str, Message] = {
    "RegisterBroker": controller_pb2.RegisterBrokerRequest(broker_id=1, incarnation_id=bytes(16)),
    "BrokerHeartbeat": controller_pb2.BrokerHeartbeatRequest(broker_id=1, broker_epoch=1, want_shutdown=True),
    "HoldSession": controller_pb2.HoldSessionRequest(broker_id=1, epoch=1),
    "AllocateProducerIds": controller_pb2.AllocateProducerIdsRequest(broker_id=1, broker_epoch=1),
    "AlterPartition": controller_pb2.AlterPartitionRequest(broker_id=1, broker_epoch=1),
    "ReportOfflineReplicas": controller_pb2.ReportOfflineReplicasRequest(broker_id=1, broker_epoch=1),
    "ResignReplicas": controller_pb2.ResignReplicasRequest(broker_id=1, broker_epoch=1),
    "ReplicaFetch": broker_pb2.ReplicaFetchRequest(replica_id=1, broker_epoch=1),
}
"""What broker 1 alone may say."""
OF_COORDINATOR: dict[str, Message] = {
    "RegisterCoordinator": controller_pb2.RegisterCoordinatorRequest(coordinator_id=1, incarnation_id=bytes(16)),
    "CoordinatorHeartbeat": controller_pb2.CoordinatorHeartbeatRequest(coordinator_id=1, coordinator_epoch=1),
}
SENDER = raft_pb2.ReplicaKey(node_id=1, directory_id="evil")
OF_CONTROLLER: dict[str, Message] = {
    "Exchange": raft_pb2.RaftEnvelope(messages=[raft_pb2.RaftMessage(sender=SENDER, term=1 << 40)]),
    "Introduce": raft_pb2.IntroduceRequest(replica=SENDER, address="evil:1"),
}
SAID_BY = {
    **dict.fromkeys(OF_BROKER, "broker"),
    **dict.fromkeys(OF_COORDINATOR, "coordinator"),
    **dict.fromkeys(OF_CONTROLLER, "controller"),
}


def stores_of(canary: CanaryCluster, thief: str) -> Stores:
    signed = client(thief) if thief == "admin" else server(thief)
    return write_stores(canary.cluster.directory / f"stolen-{thief}", signed)


@pytest.mark.parametrize("name", SAID_BY)
def test_a_servers_request_with_another_servers_certificate_is_denied(canary: CanaryCluster, name: str) -> None:
    request = {**OF_BROKER, **OF_COORDINATOR, **OF_CONTROLLER}[name].SerializeToString()
    cluster = canary.cluster
    address = cluster.grpc if name == "ReplicaFetch" else cluster.controller_grpc
    for thief in {"controller", "broker", "coordinator", "admin"} - {SAID_BY[name]}:
        with Caller(address, stores_of(canary, thief)) as caller, pytest.raises(grpc.RpcError) as caught:
            caller.call(RPCS[name], request)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED, (thief, caught.value.details())
        assert f"is not allowed to act as {SAID_BY[name]} 1" in caught.value.details()


def test_a_broker_id_without_a_configured_principal_cannot_register(canary: CanaryCluster) -> None:
    """No certificate of the cluster may register it."""
    register = controller_pb2.RegisterBrokerRequest(broker_id=9, incarnation_id=bytes(16)).SerializeToString()
    for thief in ("controller", "broker", "coordinator", "admin"):
        with (
            Caller(canary.cluster.controller_grpc, stores_of(canary, thief)) as caller,
            pytest.raises(grpc.RpcError) as caught,
        ):
            caller.call(RPCS["RegisterBroker"], register)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
