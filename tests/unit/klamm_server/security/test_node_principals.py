"""Tests which principal may speak for which server, and the requests that are checked for it."""

from __future__ import annotations

import pytest

from klamm.errors import ConfigError
from klamm.rpc.status import CallFailed, Status
from klamm.wire.v1 import broker_pb2, coordinator_pb2, raft_pb2
from klamm.wire.v1 import controller_pb2 as pb
from klamm.wire.v1.broker_pb2 import ReplicaFetchRequest
from klamm_server.security.node_principals import Node, NodeKind, NodePrincipals, nodes_of

BROKER_1 = Node(NodeKind.BROKER, 1)
BOUND = ("broker:1=User:b=1", "broker:2=User:b2", "controller:1=User:c1")


def bound() -> NodePrincipals:
    made = NodePrincipals.parse(BOUND)
    assert made is not None
    return made


def test_a_request_for_a_node_is_allowed_from_the_principal_of_that_node() -> None:
    bound().check([BROKER_1, BROKER_1], "User:b=1")
    bound().check([], "User:anybody")


@pytest.mark.parametrize(
    ("node", "principal"),
    [
        (BROKER_1, "User:b2"),
        (BROKER_1, "User:ANONYMOUS"),
        (Node(NodeKind.CONTROLLER, 1), "User:b=1"),
        (Node(NodeKind.COORDINATOR, 1), "User:c1"),
        (Node(NodeKind.BROKER, 3), "User:b=1"),
    ],
)
def test_a_request_for_a_node_from_another_principal_is_refused(node: Node, principal: str) -> None:
    with pytest.raises(CallFailed) as caught:
        bound().check([node], principal)
    assert caught.value.status is Status.PERMISSION_DENIED
    assert f"{principal} is not allowed to act as {node.kind} {node.node_id}" in str(caught.value)


def test_without_node_principals_there_is_no_check() -> None:
    assert NodePrincipals.parse([]) is None


def test_a_node_with_two_principals_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        NodePrincipals.parse(["broker:1=User:a", "broker:1=User:b"])
    assert str(caught.value) == "node.principals: broker:1 is listed twice, expected each server once"


def test_every_call_with_a_server_epoch_names_its_node() -> None:
    asked = {
        f"{service.name}/{method.name}"
        for contract in (broker_pb2, pb, coordinator_pb2, raft_pb2)
        for service in contract.DESCRIPTOR.services_by_name.values()
        for method in service.methods
        if {"broker_epoch", "coordinator_epoch"} & set(method.input_type.fields_by_name)
    }
    assert {"Controller/BrokerHeartbeat", "Replication/ReplicaFetch", "Controller/ResignReplicas"} <= asked
    assert [path for path in sorted(asked) if nodes_of(f"/klamm.v1.{path}") is None] == []


@pytest.mark.parametrize(
    ("path", "request_", "nodes"),
    [
        ("Controller/RegisterBroker", pb.RegisterBrokerRequest(broker_id=1), [BROKER_1]),
        ("Controller/BrokerHeartbeat", pb.BrokerHeartbeatRequest(broker_id=1), [BROKER_1]),
        ("Controller/AlterPartition", pb.AlterPartitionRequest(broker_id=1), [BROKER_1]),
        ("Controller/HoldSession", pb.HoldSessionRequest(broker_id=1), [BROKER_1]),
        (
            "Controller/HoldSession",
            pb.HoldSessionRequest(coordinator_id=1),
            [Node(NodeKind.COORDINATOR, 1)],
        ),
        ("Controller/AllocateProducerIds", pb.AllocateProducerIdsRequest(broker_id=1, broker_epoch=5), [BROKER_1]),
        (
            "Controller/AllocateProducerIds",
            pb.AllocateProducerIdsRequest(coordinator_id=1, coordinator_epoch=5),
            [Node(NodeKind.COORDINATOR, 1)],
        ),
        ("Replication/ReplicaFetch", ReplicaFetchRequest(replica_id=1), [BROKER_1]),
        (
            "Raft/Exchange",
            raft_pb2.RaftEnvelope(
                messages=[raft_pb2.RaftMessage(sender=raft_pb2.ReplicaKey(node_id=number)) for number in (1, 2)]
            ),
            [Node(NodeKind.CONTROLLER, 1), Node(NodeKind.CONTROLLER, 2)],
        ),
        (
            "Raft/Introduce",
            raft_pb2.IntroduceRequest(replica=raft_pb2.ReplicaKey(node_id=1)),
            [Node(NodeKind.CONTROLLER, 1)],
        ),
    ],
)
def test_the_node_of_a_request_is_found_in_its_fields(path: str, request_: object, nodes: list[Node]) -> None:
    speaks_for = nodes_of(f"/klamm.v1.{path}")
    assert speaks_for is not None
    assert speaks_for(request_) == nodes


def test_calls_of_clients_name_no_node() -> None:
    for path in ("Broker/Produce", "Admin/CreateTopics", "Controller/WatchMetadata"):
        assert nodes_of(f"/klamm.v1.{path}") is None
