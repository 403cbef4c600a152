"""Tests that the table of checks is complete, by the contracts themselves and by the spoken Kafka APIs."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import klamm.wire.v1
from klamm.acls import AclOperation, ResourceType
from klamm.wire.service import methods
from klamm_broker.kafka.requests import SPOKEN
from klamm_server.security.operations import KAFKA_APIS, RPCS, Check, UncheckedCallError, check_of_api, check_of_rpc

SUPPORTED = {
    ResourceType.TOPIC: {"READ", "WRITE", "CREATE", "DESCRIBE", "DELETE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"},
    ResourceType.GROUP: {"READ", "DESCRIBE", "DELETE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"},
    ResourceType.TRANSACTIONAL_ID: {"DESCRIBE", "WRITE", "TWO_PHASE_COMMIT"},
    ResourceType.CLUSTER: {
        *("CREATE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "ALTER", "DESCRIBE"),
    },
}
"""What Kafka's AclEntry.supportedOperations says that an entry of a type can allow."""
SAME = {
    "Admin": {
        *("CREATE_TOPICS", "CREATE_PARTITIONS", "INCREMENTAL_ALTER_CONFIGS", "DESCRIBE_CONFIGS", "DESCRIBE_CLUSTER"),
        *("DESCRIBE_QUORUM", "ADD_RAFT_VOTER", "REMOVE_RAFT_VOTER", "ELECT_LEADERS", "UNREGISTER_BROKER"),
        *("ALTER_PARTITION_REASSIGNMENTS", "LIST_PARTITION_REASSIGNMENTS"),
        *("DESCRIBE_ACLS", "CREATE_ACLS", "DELETE_ACLS"),
    },
    "Broker": {
        *("PRODUCE", "FETCH", "LIST_OFFSETS", "METADATA", "FIND_COORDINATOR", "DELETE_RECORDS", "INIT_PRODUCER_ID"),
        *("OFFSET_FOR_LEADER_EPOCH", "WRITE_TXN_MARKERS", "DESCRIBE_PRODUCERS", "DESCRIBE_LOG_DIRS"),
        "ALTER_REPLICA_LOG_DIRS",
    },
    "Coordinator": {
        *("JOIN_GROUP", "SYNC_GROUP", "HEARTBEAT", "LEAVE_GROUP", "CONSUMER_GROUP_HEARTBEAT", "OFFSET_COMMIT"),
        *("CONSUMER_GROUP_DESCRIBE", "OFFSET_FETCH", "OFFSET_DELETE", "LIST_GROUPS", "DESCRIBE_GROUPS", "END_TXN"),
        *("DELETE_GROUPS", "TXN_OFFSET_COMMIT", "ADD_PARTITIONS_TO_TXN", "LIST_TRANSACTIONS", "INIT_PRODUCER_ID"),
        *("DESCRIBE_TRANSACTIONS", "WRITE_TXN_MARKERS"),
    },
}
"""RPCs that do what a Kafka API does."""


def contracts() -> list[str]:
    """Returns every RPC from the descriptors of all contracts."""
    paths = []
    for module in pkgutil.iter_modules(klamm.wire.v1.__path__):
        if module.name.endswith("_pb2"):
            file = importlib.import_module(f"klamm.wire.v1.{module.name}").DESCRIPTOR
            for service in file.services_by_name.values():
                paths += [method.path for method in methods(service)]
    return paths


def test_every_rpc_has_a_check() -> None:
    paths = contracts()
    assert "/klamm.v1.Broker/Produce" in paths
    missing = [path for path in paths if path.split("/")[2] not in RPCS.get(path.split("/")[1].split(".")[-1], {})]
    assert missing == []
    for path in paths:
        check_of_rpc(path)


@pytest.mark.parametrize("api", [api_key.name for api_key in SPOKEN])
def test_every_supported_kafka_api_has_a_check(api: str) -> None:
    assert check_of_api(api) is KAFKA_APIS[api]


@pytest.mark.parametrize(("service", "api"), [(service, api) for service in SAME for api in sorted(SAME[service])])
def test_a_grpc_call_and_its_kafka_api_have_the_same_check(service: str, api: str) -> None:
    name = api.title().replace("_", "")
    assert check_of_rpc(f"/klamm.v1.{service}/{name}") == check_of_api(api)


def all_checks() -> list[Check]:
    return [*KAFKA_APIS.values(), *(check for service in RPCS.values() for check in service.values())]


def test_every_check_uses_only_operations_that_an_acl_can_allow() -> None:
    for check in all_checks():
        assert {operation.name for operation in check.of_cluster} <= SUPPORTED[ResourceType.CLUSTER]
        for operation, resource_type in check.of_resources:
            assert operation.name in SUPPORTED[resource_type]
        assert not (check.of_cluster and check.of_resources)


def test_calls_between_servers_require_cluster_action() -> None:
    for service in ("Controller", "Raft", "Replication"):
        assert {check.of_cluster for check in RPCS[service].values()} == {(AclOperation.CLUSTER_ACTION,)}


@pytest.mark.parametrize("path", ["/klamm.v1.Broker/Steal", "/klamm.v1.Vault/Open"])
def test_an_unknown_call_is_an_error_that_names_it(path: str) -> None:
    with pytest.raises(UncheckedCallError, match=path):
        check_of_rpc(path)
    with pytest.raises(UncheckedCallError, match="STEAL"):
        check_of_api("STEAL")
