"""The rights that each RPC of the contracts needs.

No server serves a call without a row here, because a server that registers such a call does not start. So each new call
needs a decision about its check. If a call does the same as a Kafka API, both need the same rights: the broker declares
each Kafka API with the RPC that has its rights (`klamm_broker.kafka.api`). The checks of Kafka APIs are those of
Kafka's KafkaApis and ControllerApis.

    anybody           no check
    of the cluster    one of these operations on the cluster, for the whole request
    of resources      each resource that the request names, or that the answer would show, is checked by itself

The gate of the gRPC listeners reads the rights to the cluster here, and refuses a call before its handler runs. The
Kafka listener reads them from the declaration of the API, after the request is decoded, because most answers name each
item of the request with the error. At both listeners, the handlers check the needs of resources (`needs.py`).
`tests/integration/security/test_rights.py` compares each call with its row: it gives a client one right at a time.
`tests/clients/test_rights.py` compares the rows with Apache Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from klamm.acls import AclOperation
from klamm.errors import KlammError
from klamm_server.security import needs
from klamm_server.security.needs import Need


@dataclass(frozen=True, slots=True)
class Check:
    """The rights that a call needs. The module's docstring explains the kinds. If both fields are empty, anybody may
    call."""

    of_cluster: tuple[AclOperation, ...] = ()
    """The operations on the cluster of which the caller needs one."""
    of_resources: tuple[Need, ...] = ()
    """The needs in the order in which they are checked. A request without such a resource skips its need."""


class UncheckedCallError(KlammError):
    """The table of this module has no check for a call."""


def check_of_rpc(path: str) -> Check:
    """Returns the check of a call such as `/klamm.v1.Broker/Produce`. Raises UncheckedCallError."""
    service, name = path.removeprefix("/klamm.v1.").split("/")
    check = RPCS.get(service, {}).get(name)
    if check is None:
        raise UncheckedCallError(f"{path} has no authorization check: add one to klamm_server.security.operations")
    return check


def is_between_servers(path: str) -> bool:
    """Returns whether only servers make that call. Raises UncheckedCallError."""
    return check_of_rpc(path) == _SERVER


def _cluster(*operations: AclOperation) -> Check:
    return Check(of_cluster=operations)


def _check(*needs: Need) -> Check:
    return Check(of_resources=needs)


_ANYBODY: Final = Check()
_SERVER: Final = _cluster(AclOperation.CLUSTER_ACTION)
"""The check of calls between servers."""
_ALTER_CLUSTER: Final = _cluster(AclOperation.ALTER)
_DESCRIBE_CLUSTER: Final = _cluster(AclOperation.DESCRIBE)

_PRODUCE: Final = _check(needs.WRITE_TRANSACTION, needs.WRITE_TOPIC, needs.WRITE_INTERNAL_TOPIC)
_PRODUCE_RECORDS: Final = Check(of_resources=_PRODUCE.of_resources[1:])
"""The check of plain records, which have no transaction."""
_CREATE_TOPICS: Final = _check(needs.CREATE_TOPIC, needs.TOPIC_CONFIGS_SHOWN)
_FETCH: Final = _check(needs.READ_TOPIC)
_NAMED_TOPICS: Final = _check(needs.DESCRIBE_TOPIC)
_TOPICS: Final = _check(needs.DESCRIBE_TOPIC, needs.TOPIC_SHOWN)
"""The check of requests for topics by name, or for all topics."""
_METADATA: Final = _check(needs.DESCRIBE_TOPIC, needs.TOPIC_SHOWN, needs.CREATE_TOPIC)
_DELETE_TOPICS: Final = _check(needs.DELETE_TOPIC, needs.DESCRIBE_TOPIC)
"""A topic that does not exist needs only DESCRIBE."""
_ALTER_TOPIC: Final = _check(needs.ALTER_TOPIC)
_DELETE_RECORDS: Final = _check(needs.DELETE_RECORDS)
_EPOCH_ENDS: Final = _check(needs.EPOCH_END)
_FIND_COORDINATOR: Final = _check(needs.DESCRIBE_GROUP, needs.DESCRIBE_TRANSACTION)
_MARKERS: Final = _cluster(AclOperation.CLUSTER_ACTION, AclOperation.ALTER)
_MEMBER: Final = _check(needs.READ_GROUP)
_CONSUMER_GROUP: Final = _check(needs.READ_GROUP, needs.DESCRIBE_TOPIC, needs.TOPIC_SHOWN)
"""A topic that the caller may not describe does not match a member's expression."""
_DESCRIBE_CONSUMER_GROUP: Final = _check(needs.DESCRIBE_GROUP, needs.DESCRIBE_TOPIC)
_DESCRIBE_CLASSIC_GROUP: Final = _check(needs.DESCRIBE_GROUP)
_LIST_GROUPS: Final = _check(needs.GROUP_SHOWN)
_COMMIT: Final = _check(needs.READ_GROUP, needs.READ_TOPIC)
_FETCH_OFFSETS: Final = _check(needs.DESCRIBE_GROUP, needs.DESCRIBE_TOPIC, needs.TOPIC_SHOWN)
_DELETE_OFFSETS: Final = _check(needs.DELETE_GROUP, needs.READ_TOPIC)
_DELETE_GROUP: Final = _check(needs.DELETE_GROUP)
_COMMIT_IN_TRANSACTION: Final = _check(needs.WRITE_TRANSACTION, needs.READ_GROUP, needs.READ_TOPIC)
_IN_TRANSACTION: Final = _check(needs.WRITE_TRANSACTION)
_ADD_PARTITIONS: Final = _check(needs.WRITE_TRANSACTION, needs.WRITE_TOPIC)
_LIST_TRANSACTIONS: Final = _check(needs.TRANSACTION_SHOWN)
_DESCRIBE_TRANSACTIONS: Final = _check(needs.DESCRIBE_TRANSACTION, needs.TOPIC_SHOWN)
_DESCRIBE_CONFIGS: Final = _check(*needs.DESCRIBE_CONFIGS.values())
_ALTER_CONFIGS: Final = _check(*needs.ALTER_CONFIGS.values())

_BROKER: Final = {
    "Metadata": _METADATA,
    "FindCoordinator": _FIND_COORDINATOR,
    "Produce": _PRODUCE,
    "ProduceStream": _PRODUCE,
    "ProduceRecords": _PRODUCE_RECORDS,
    "InitProducerId": _check(needs.IDEMPOTENT_WRITE),
    "Fetch": _FETCH,
    "FetchStream": _FETCH,
    "ListOffsets": _NAMED_TOPICS,
    "DeleteRecords": _DELETE_RECORDS,
    "OffsetForLeaderEpoch": _EPOCH_ENDS,
    "WriteTxnMarkers": _MARKERS,
    "DescribeProducers": _FETCH,
    "DescribeUnread": _NAMED_TOPICS,
    "DescribeLogDirs": _DESCRIBE_CLUSTER,
    "AlterReplicaLogDirs": _ALTER_CLUSTER,
    "ScrubLogs": _ALTER_CLUSTER,
    "DescribeScrubs": _DESCRIBE_CLUSTER,
}
_ADMIN: Final = {
    "CreateTopics": _CREATE_TOPICS,
    "DeleteTopics": _DELETE_TOPICS,
    "CreatePartitions": _ALTER_TOPIC,
    "DescribeTopics": _TOPICS,
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
    "JoinGroup": _MEMBER,
    "SyncGroup": _MEMBER,
    "Heartbeat": _MEMBER,
    "LeaveGroup": _MEMBER,
    "ConsumerGroupHeartbeat": _CONSUMER_GROUP,
    "ConsumerGroupDescribe": _DESCRIBE_CONSUMER_GROUP,
    "OffsetCommit": _COMMIT,
    "OffsetFetch": _FETCH_OFFSETS,
    "LowestOffsets": _SERVER,
    "OffsetDelete": _DELETE_OFFSETS,
    "ListGroups": _LIST_GROUPS,
    "DescribeGroups": _DESCRIBE_CLASSIC_GROUP,
    "DeleteGroups": _DELETE_GROUP,
    "DescribeGroupLag": _check(needs.DESCRIBE_GROUP, needs.TOPIC_SHOWN),
    "ForgetLostRecords": _check(needs.READ_GROUP),
    "TellLogStarts": _SERVER,
    "TxnOffsetCommit": _COMMIT_IN_TRANSACTION,
    "WriteTxnMarkers": _MARKERS,
    "InitProducerId": _IN_TRANSACTION,
    "AddPartitionsToTxn": _ADD_PARTITIONS,
    "EndTxn": _IN_TRANSACTION,
    "PrepareTxn": _check(needs.WRITE_TRANSACTION, needs.PREPARE_TRANSACTION),
    "RegisterRun": _IN_TRANSACTION,
    "DecideBatch": _IN_TRANSACTION,
    "DeleteLedger": _IN_TRANSACTION,
    "ListLedgers": _LIST_TRANSACTIONS,
    "ListTransactions": _LIST_TRANSACTIONS,
    "DescribeTransactions": _DESCRIBE_TRANSACTIONS,
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
