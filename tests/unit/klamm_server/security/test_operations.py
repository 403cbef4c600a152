"""Tests that the table of checks is complete, by the contracts themselves and by the spoken Kafka APIs."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import klamm.wire.v1
from klamm.acls import AclOperation, ResourceType
from klamm.wire.service import methods
from klamm_broker.kafka.api import APIS, ApiKey
from klamm_broker.kafka.served_apis import HANDLERS
from klamm_server.security.needs import Need, Right
from klamm_server.security.operations import RPCS, Check, UncheckedCallError, check_of_rpc
from tests.support.single_rights import EVERY_RIGHT, needs_of

SAME = {
    "Admin": {
        *("CREATE_TOPICS", "DELETE_TOPICS", "CREATE_PARTITIONS", "INCREMENTAL_ALTER_CONFIGS", "DESCRIBE_CONFIGS"),
        *("DESCRIBE_QUORUM", "ADD_RAFT_VOTER", "REMOVE_RAFT_VOTER", "ELECT_LEADERS", "UNREGISTER_BROKER"),
        *("ALTER_PARTITION_REASSIGNMENTS", "LIST_PARTITION_REASSIGNMENTS"),
        *("DESCRIBE_ACLS", "CREATE_ACLS", "DELETE_ACLS", "DESCRIBE_CLIENT_QUOTAS", "ALTER_CLIENT_QUOTAS"),
        *("DESCRIBE_USER_SCRAM_CREDENTIALS", "ALTER_USER_SCRAM_CREDENTIALS"),
    },
    "Broker": {
        *("PRODUCE", "FETCH", "LIST_OFFSETS", "FIND_COORDINATOR", "DELETE_RECORDS", "OFFSET_FOR_LEADER_EPOCH"),
        *("WRITE_TXN_MARKERS", "DESCRIBE_PRODUCERS", "DESCRIBE_LOG_DIRS"),
        "ALTER_REPLICA_LOG_DIRS",
    },
    "Coordinator": {
        *("JOIN_GROUP", "SYNC_GROUP", "HEARTBEAT", "LEAVE_GROUP", "CONSUMER_GROUP_HEARTBEAT", "OFFSET_COMMIT"),
        *("CONSUMER_GROUP_DESCRIBE", "OFFSET_FETCH", "OFFSET_DELETE", "LIST_GROUPS", "DESCRIBE_GROUPS", "END_TXN"),
        *("DELETE_GROUPS", "TXN_OFFSET_COMMIT", "LIST_TRANSACTIONS"),
        *("DESCRIBE_TRANSACTIONS", "WRITE_TXN_MARKERS"),
    },
}
"""RPCs that do what a Kafka API does."""
OTHERS = {
    "Server/DescribeServer": [],
    "Authentication/SaslHandshake": [],
    "Authentication/SaslAuthenticate": [],
    "Broker/Metadata": ["DESCRIBE TOPIC", "show: DESCRIBE TOPIC", "CREATE CLUSTER or CREATE TOPIC"],
    "Broker/InitProducerId": ["WRITE TOPIC or IDEMPOTENT_WRITE CLUSTER"],
    "Broker/ProduceStream": ["WRITE TRANSACTIONAL_ID", "WRITE TOPIC", "CLUSTER_ACTION CLUSTER"],
    "Broker/ProduceRecords": ["WRITE TOPIC", "CLUSTER_ACTION CLUSTER"],
    "Broker/FetchStream": ["READ TOPIC"],
    "Broker/DescribeUnread": ["DESCRIBE TOPIC"],
    "Broker/ScrubLogs": ["ALTER CLUSTER"],
    "Broker/DescribeScrubs": ["DESCRIBE CLUSTER"],
    "Admin/DescribeCluster": [],
    "Admin/DescribeTopics": ["DESCRIBE TOPIC", "show: DESCRIBE TOPIC"],
    "Admin/CheckAcl": ["DESCRIBE CLUSTER"],
    "Coordinator/InitProducerId": ["WRITE TRANSACTIONAL_ID"],
    "Coordinator/DescribeGroupLag": ["DESCRIBE GROUP", "show: DESCRIBE TOPIC"],
    "Coordinator/ForgetLostRecords": ["READ GROUP"],
    "Coordinator/TellLogStarts": ["CLUSTER_ACTION CLUSTER"],
    "Coordinator/AddPartitionsToTxn": ["WRITE TRANSACTIONAL_ID", "WRITE TOPIC"],
    "Coordinator/LowestOffsets": ["CLUSTER_ACTION CLUSTER"],
    "Coordinator/PrepareTxn": ["WRITE TRANSACTIONAL_ID", "TWO_PHASE_COMMIT TRANSACTIONAL_ID"],
    "Coordinator/RegisterRun": ["WRITE TRANSACTIONAL_ID"],
    "Coordinator/DecideBatch": ["WRITE TRANSACTIONAL_ID"],
    "Coordinator/DeleteLedger": ["WRITE TRANSACTIONAL_ID"],
    "Coordinator/ListLedgers": ["show: DESCRIBE TRANSACTIONAL_ID"],
}
"""The needs of the RPCs that Kafka does not have, or has with other requests. No comparison with Kafka tells that their
rows are right."""
BETWEEN_SERVERS = ("Controller", "Raft", "Replication")
"""The services that have only calls between servers."""


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


def test_every_kafka_api_is_declared_at_its_handler() -> None:
    assert set(APIS) == set(ApiKey)
    declared = [value for module in HANDLERS for value in vars(module).values()]
    methods_of = [member for value in declared if isinstance(value, type) for member in vars(value).values()]
    assert {handler.api for handler in (*declared, *methods_of) if hasattr(handler, "api")} == set(APIS.values())


@pytest.mark.parametrize(("service", "api"), [(service, api) for service in SAME for api in sorted(SAME[service])])
def test_a_grpc_call_and_its_kafka_api_have_the_same_check(service: str, api: str) -> None:
    name = api.title().replace("_", "")
    assert check_of_rpc(f"/klamm.v1.{service}/{name}") == APIS[ApiKey[api]].check


def all_checks() -> list[Check]:
    return [*(api.check for api in APIS.values()), *(check for service in RPCS.values() for check in service.values())]


def test_every_check_uses_only_operations_that_an_acl_can_allow() -> None:
    for check in all_checks():
        for need in needs_of(check):
            assert set(need.one_of) <= {*EVERY_RIGHT, Right(AclOperation.DELETE, ResourceType.CLUSTER)}
        assert not (check.of_cluster and check.of_resources)


@pytest.mark.parametrize("path", OTHERS)
def test_a_call_that_is_not_kafkas_has_these_needs(path: str) -> None:
    needs = needs_of(check_of_rpc(f"/klamm.v1.{path}"))
    assert [text_of(need) for need in needs] == OTHERS[path]


def text_of(need: Need) -> str:
    rights = (f"{operation.name} {resource_type.name}" for operation, resource_type in need.one_of)
    return ("show: " if need.refused_as is None else "") + " or ".join(rights)


def test_the_needs_of_every_rpc_are_compared_with_a_kafka_api_or_listed_here() -> None:
    compared = {f"{service}/{api.title().replace('_', '')}" for service, apis in SAME.items() for api in apis}
    named = {path.removeprefix("/klamm.v1.") for path in contracts()}
    assert {path for path in named if path.split("/")[0] not in BETWEEN_SERVERS} == compared | set(OTHERS)
    assert not compared & set(OTHERS)


def test_calls_between_servers_require_cluster_action() -> None:
    for service in BETWEEN_SERVERS:
        assert {check.of_cluster for check in RPCS[service].values()} == {(AclOperation.CLUSTER_ACTION,)}


@pytest.mark.parametrize("path", ["/klamm.v1.Broker/Steal", "/klamm.v1.Vault/Open"])
def test_an_unknown_call_is_an_error_that_names_it(path: str) -> None:
    with pytest.raises(UncheckedCallError, match=path):
        check_of_rpc(path)
