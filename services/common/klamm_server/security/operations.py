"""The right that each call needs: every RPC of the contracts, and every Kafka API that is spoken.

No server serves a call without a row here, because a server that registers such a call does not start. So each new call
needs a decision about its check. The checks of Kafka APIs are those of Kafka's KafkaApis and ControllerApis. If a call
of the contracts does the same as a Kafka API, both need the same right.

    anybody           no check
    of the cluster    one of these operations on the cluster, checked before the server reads anything of the request
    of resources      each resource that the request names, or would show, is checked by itself; resources that the
                      caller may not see are left out or refused, as in Kafka
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from klamm.acls import AclOperation, ResourceType
from klamm.errors import KlammError


class Need(NamedTuple):
    """An operation on a resource of a type."""

    operation: AclOperation
    resource_type: ResourceType


@dataclass(frozen=True, slots=True)
class Check:
    """The right that a call needs. The module's docstring explains the kinds. If both fields are empty, anybody may
    call."""

    of_cluster: tuple[AclOperation, ...] = ()
    """The operations on the cluster of which the caller needs one."""
    of_resources: tuple[Need, ...] = ()


class UncheckedCallError(KlammError):
    """The tables of this module have no check for a call."""


def check_of_rpc(path: str) -> Check:
    """Returns the check of a call such as `/klamm.v1.Broker/Produce`. Raises UncheckedCallError."""
    service, name = path.removeprefix("/klamm.v1.").split("/")
    return _found(RPCS.get(service, {}).get(name), path)


def is_between_servers(path: str) -> bool:
    """Returns whether only servers make that call. Raises UncheckedCallError."""
    return check_of_rpc(path) == _SERVER


def check_of_api(name: str) -> Check:
    """Returns the check of a Kafka API such as `LIST_OFFSETS`. Raises UncheckedCallError."""
    return _found(KAFKA_APIS.get(name), f"Kafka's API {name}")


def _found(check: Check | None, call: str) -> Check:
    if check is None:
        raise UncheckedCallError(f"{call} has no authorization check: add one to klamm_server.security.operations")
    return check


def _cluster(*operations: AclOperation) -> Check:
    return Check(of_cluster=operations)


def _resources(*needs: tuple[AclOperation, ResourceType]) -> Check:
    return Check(of_resources=tuple(Need(*need) for need in needs))


_TOPIC, _GROUP, _TRANSACTION = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
_READ, _WRITE, _DELETE, _DESCRIBE = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
)

_ANYBODY: Final = Check()
_SERVER: Final = _cluster(AclOperation.CLUSTER_ACTION)
"""The check of calls between servers."""
_ALTER_CLUSTER: Final = _cluster(AclOperation.ALTER)
_DESCRIBE_CLUSTER: Final = _cluster(AclOperation.DESCRIBE)

_PRODUCE: Final = _resources((_WRITE, _TOPIC), (_WRITE, _TRANSACTION))
_CREATE_TOPICS: Final = _resources((AclOperation.CREATE, ResourceType.CLUSTER), (AclOperation.CREATE, _TOPIC))
_FETCH: Final = _resources((_READ, _TOPIC))
_DESCRIBE_TOPIC: Final = _resources((_DESCRIBE, _TOPIC))
_DELETE_TOPICS: Final = _resources((_DELETE, _TOPIC), (_DESCRIBE, _TOPIC))
"""DELETE on the cluster is enough, too. An ACL can only give it with ALL."""
_DELETE_RECORDS: Final = _resources((_DELETE, _TOPIC))
_EPOCH_ENDS: Final = _resources((AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER), (_DESCRIBE, _TOPIC))
_FIND_COORDINATOR: Final = _resources((_DESCRIBE, _GROUP), (_DESCRIBE, _TRANSACTION))
_INIT_PRODUCER_ID: Final = _resources(
    (_WRITE, _TRANSACTION),
    (AclOperation.TWO_PHASE_COMMIT, _TRANSACTION),
    (AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER),
    (_WRITE, _TOPIC),
)
_MARKERS: Final = _cluster(AclOperation.CLUSTER_ACTION, AclOperation.ALTER)
_READ_GROUP: Final = _resources((_READ, _GROUP))
_CONSUMER_GROUP: Final = _resources((_READ, _GROUP), (_DESCRIBE, _TOPIC))
_DESCRIBE_GROUP: Final = _resources((_DESCRIBE, _GROUP), (_DESCRIBE, _TOPIC))
_LIST_GROUPS: Final = _resources((_DESCRIBE, ResourceType.CLUSTER), (_DESCRIBE, _GROUP))
_COMMIT: Final = _resources((_READ, _GROUP), (_READ, _TOPIC))
_FETCH_OFFSETS: Final = _resources((_DESCRIBE, _GROUP), (_DESCRIBE, _TOPIC))
_DELETE_OFFSETS: Final = _resources((_DELETE, _GROUP), (_READ, _TOPIC))
_DELETE_GROUP: Final = _resources((_DELETE, _GROUP))
_COMMIT_IN_TRANSACTION: Final = _resources((_WRITE, _TRANSACTION), (_READ, _GROUP), (_READ, _TOPIC))
_WRITE_TRANSACTION: Final = _resources((_WRITE, _TRANSACTION))
_ADD_PARTITIONS: Final = _resources((_WRITE, _TRANSACTION), (_WRITE, _TOPIC))
"""The check of a client's AddPartitionsToTxn. Kafka's API from version 4 on is for servers and needs CLUSTER_ACTION."""
_SHOW_TRANSACTIONS: Final = _resources((_DESCRIBE, _TRANSACTION), (_DESCRIBE, _TOPIC))
_DESCRIBE_CONFIGS: Final = _resources(
    (AclOperation.DESCRIBE_CONFIGS, _TOPIC),
    (AclOperation.DESCRIBE_CONFIGS, _GROUP),
    (AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),
)
_ALTER_CONFIGS: Final = _resources(
    (AclOperation.ALTER_CONFIGS, _TOPIC),
    (AclOperation.ALTER_CONFIGS, _GROUP),
    (AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER),
)

_BROKER: Final = {
    "Metadata": _DESCRIBE_TOPIC,
    "FindCoordinator": _FIND_COORDINATOR,
    "Produce": _PRODUCE,
    "ProduceStream": _PRODUCE,
    "InitProducerId": _INIT_PRODUCER_ID,
    "Fetch": _FETCH,
    "FetchStream": _FETCH,
    "ListOffsets": _DESCRIBE_TOPIC,
    "DeleteRecords": _DELETE_RECORDS,
    "OffsetForLeaderEpoch": _EPOCH_ENDS,
    "WriteTxnMarkers": _MARKERS,
    "DescribeProducers": _FETCH,
    "DescribeLogDirs": _DESCRIBE_CLUSTER,
    "AlterReplicaLogDirs": _ALTER_CLUSTER,
    "ScrubLogs": _ALTER_CLUSTER,
    "DescribeScrubs": _DESCRIBE_CLUSTER,
}
_ADMIN: Final = {
    "CreateTopics": _CREATE_TOPICS,
    "DeleteTopics": _DELETE_TOPICS,
    "CreatePartitions": _resources((AclOperation.ALTER, _TOPIC)),
    "DescribeTopics": _DESCRIBE_TOPIC,
    "DescribeConfigs": _DESCRIBE_CONFIGS,
    "IncrementalAlterConfigs": _ALTER_CONFIGS,
    "DescribeCluster": _ANYBODY,
    "DescribeQuorum": _DESCRIBE_CLUSTER,
    "AddRaftVoter": _ALTER_CLUSTER,
    "RemoveRaftVoter": _ALTER_CLUSTER,
    "ElectLeaders": _ALTER_CLUSTER,
    "AlterPartitionReassignments": _ALTER_CLUSTER,
    "ListPartitionReassignments": _DESCRIBE_CLUSTER,
    "UnregisterBroker": _ALTER_CLUSTER,
    "DescribeAcls": _DESCRIBE_CLUSTER,
    "CreateAcls": _ALTER_CLUSTER,
    "DeleteAcls": _ALTER_CLUSTER,
    "CheckAcl": _DESCRIBE_CLUSTER,
    "DescribeUserScramCredentials": _DESCRIBE_CLUSTER,
    "AlterUserScramCredentials": _ALTER_CLUSTER,
    "DescribeClientQuotas": _cluster(AclOperation.DESCRIBE_CONFIGS),
    "AlterClientQuotas": _cluster(AclOperation.ALTER_CONFIGS),
}
_CONTROLLER: Final = dict.fromkeys(
    (
        "RegisterBroker",
        "BrokerHeartbeat",
        "RegisterCoordinator",
        "CoordinatorHeartbeat",
        "HoldSession",
        "WatchMetadata",
        "AllocateProducerIds",
        "AlterPartition",
        "ReportOfflineReplicas",
        "ResignReplicas",
        "ReportReplicaLogs",
    ),
    _SERVER,
)
_COORDINATOR: Final = {
    "JoinGroup": _READ_GROUP,
    "SyncGroup": _READ_GROUP,
    "Heartbeat": _READ_GROUP,
    "LeaveGroup": _READ_GROUP,
    "ConsumerGroupHeartbeat": _CONSUMER_GROUP,
    "ConsumerGroupDescribe": _DESCRIBE_GROUP,
    "OffsetCommit": _COMMIT,
    "OffsetFetch": _FETCH_OFFSETS,
    "OffsetDelete": _DELETE_OFFSETS,
    "ListGroups": _LIST_GROUPS,
    "DescribeGroups": _DESCRIBE_GROUP,
    "DeleteGroups": _DELETE_GROUP,
    "TxnOffsetCommit": _COMMIT_IN_TRANSACTION,
    "WriteTxnMarkers": _MARKERS,
    "InitProducerId": _INIT_PRODUCER_ID,
    "AddPartitionsToTxn": _ADD_PARTITIONS,
    "EndTxn": _WRITE_TRANSACTION,
    "PrepareTxn": _resources((_WRITE, _TRANSACTION), (AclOperation.TWO_PHASE_COMMIT, _TRANSACTION)),
    "RegisterRun": _WRITE_TRANSACTION,
    "DecideBatch": _WRITE_TRANSACTION,
    "DeleteLedger": _WRITE_TRANSACTION,
    "ListLedgers": _SHOW_TRANSACTIONS,
    "ListTransactions": _SHOW_TRANSACTIONS,
    "DescribeTransactions": _SHOW_TRANSACTIONS,
}
RPCS: Final = {
    "Server": {"DescribeServer": _ANYBODY},
    "Authentication": {"SaslHandshake": _ANYBODY, "SaslAuthenticate": _ANYBODY},
    "Broker": _BROKER,
    "Replication": {"ReplicaFetch": _SERVER},
    "Admin": _ADMIN,
    "Controller": _CONTROLLER,
    "Raft": {"Exchange": _SERVER, "Introduce": _SERVER},
    "Coordinator": _COORDINATOR,
}
"""The check of each RPC, by service of klamm.v1 and name."""

KAFKA_APIS: Final = {
    "PRODUCE": _PRODUCE,
    "FETCH": _FETCH,
    "LIST_OFFSETS": _DESCRIBE_TOPIC,
    "METADATA": _DESCRIBE_TOPIC,
    "OFFSET_COMMIT": _COMMIT,
    "OFFSET_FETCH": _FETCH_OFFSETS,
    "FIND_COORDINATOR": _FIND_COORDINATOR,
    "JOIN_GROUP": _READ_GROUP,
    "HEARTBEAT": _READ_GROUP,
    "LEAVE_GROUP": _READ_GROUP,
    "SYNC_GROUP": _READ_GROUP,
    "DESCRIBE_GROUPS": _DESCRIBE_GROUP,
    "LIST_GROUPS": _LIST_GROUPS,
    "SASL_HANDSHAKE": _ANYBODY,
    "API_VERSIONS": _ANYBODY,
    "CREATE_TOPICS": _CREATE_TOPICS,
    "DELETE_TOPICS": _DELETE_TOPICS,
    "DELETE_RECORDS": _DELETE_RECORDS,
    "INIT_PRODUCER_ID": _INIT_PRODUCER_ID,
    "OFFSET_FOR_LEADER_EPOCH": _EPOCH_ENDS,
    "ADD_PARTITIONS_TO_TXN": _ADD_PARTITIONS,
    "ADD_OFFSETS_TO_TXN": _resources((_WRITE, _TRANSACTION), (_READ, _GROUP)),
    "END_TXN": _WRITE_TRANSACTION,
    "WRITE_TXN_MARKERS": _MARKERS,
    "TXN_OFFSET_COMMIT": _COMMIT_IN_TRANSACTION,
    "DESCRIBE_ACLS": _DESCRIBE_CLUSTER,
    "CREATE_ACLS": _ALTER_CLUSTER,
    "DELETE_ACLS": _ALTER_CLUSTER,
    "DESCRIBE_CONFIGS": _DESCRIBE_CONFIGS,
    "ALTER_CONFIGS": _ALTER_CONFIGS,
    "ALTER_REPLICA_LOG_DIRS": _ALTER_CLUSTER,
    "DESCRIBE_LOG_DIRS": _DESCRIBE_CLUSTER,
    "SASL_AUTHENTICATE": _ANYBODY,
    "CREATE_PARTITIONS": _resources((AclOperation.ALTER, _TOPIC)),
    "DELETE_GROUPS": _DELETE_GROUP,
    "ELECT_LEADERS": _ALTER_CLUSTER,
    "INCREMENTAL_ALTER_CONFIGS": _ALTER_CONFIGS,
    "ALTER_PARTITION_REASSIGNMENTS": _ALTER_CLUSTER,
    "LIST_PARTITION_REASSIGNMENTS": _DESCRIBE_CLUSTER,
    "OFFSET_DELETE": _DELETE_OFFSETS,
    "DESCRIBE_CLIENT_QUOTAS": _cluster(AclOperation.DESCRIBE_CONFIGS),
    "ALTER_CLIENT_QUOTAS": _cluster(AclOperation.ALTER_CONFIGS),
    "DESCRIBE_USER_SCRAM_CREDENTIALS": _DESCRIBE_CLUSTER,
    "ALTER_USER_SCRAM_CREDENTIALS": _ALTER_CLUSTER,
    "DESCRIBE_QUORUM": _DESCRIBE_CLUSTER,
    "UPDATE_FEATURES": _ALTER_CLUSTER,
    "DESCRIBE_CLUSTER": _ANYBODY,
    "DESCRIBE_PRODUCERS": _FETCH,
    "UNREGISTER_BROKER": _ALTER_CLUSTER,
    "DESCRIBE_TRANSACTIONS": _SHOW_TRANSACTIONS,
    "LIST_TRANSACTIONS": _SHOW_TRANSACTIONS,
    "CONSUMER_GROUP_HEARTBEAT": _CONSUMER_GROUP,
    "CONSUMER_GROUP_DESCRIBE": _DESCRIBE_GROUP,
    "LIST_CONFIG_RESOURCES": _cluster(AclOperation.DESCRIBE_CONFIGS),
    "DESCRIBE_TOPIC_PARTITIONS": _DESCRIBE_TOPIC,
    "ADD_RAFT_VOTER": _ALTER_CLUSTER,
    "REMOVE_RAFT_VOTER": _ALTER_CLUSTER,
}
"""The check of each Kafka API, by Kafka's name for it (`klamm_broker.kafka.requests.ApiKey`)."""
