"""Questions about the cluster: its brokers, quorum, log directories, replicas, access lists, features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from side import TIMEOUT_MS, UNKNOWN_ID, Cases, since

from klamm_broker.kafka.requests import ApiKey

Fields = Mapping[str, Any]


def software(name: str, version: str) -> Fields:
    return {"client_software_name": name, "client_software_version": version}


API_VERSIONS = {
    "a client": lambda ask: software("wire", "1.2-rc3"),
    "an empty name": since(3, lambda ask: software("", "1")),
    "an empty version": since(3, lambda ask: software("wire", "")),
    "an illegal name": since(3, lambda ask: software("no name!", "1")),
    "an illegal version": since(3, lambda ask: software("wire", "-1")),
}
DESCRIBE_CLUSTER = {
    "brokers": lambda ask: cluster(),
    "controllers": since(1, lambda ask: cluster(endpoint_type=2)),
    "endpoint type 0": since(1, lambda ask: cluster(endpoint_type=0)),
    "endpoint type 7": since(1, lambda ask: cluster(endpoint_type=7)),
    "fenced brokers": since(2, lambda ask: cluster(include_fenced_brokers=True)),
    "authorized operations": lambda ask: cluster(include_cluster_authorized_operations=True),
}


def cluster(**changes: Any) -> Fields:
    return {
        "include_cluster_authorized_operations": False,
        "endpoint_type": 1,
        "include_fenced_brokers": False,
        **changes,
    }


def dirs(topics: Mapping[str, list[int]] | None) -> Fields:
    return {
        "topics": None
        if topics is None
        else [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()]
    }


DESCRIBE_LOG_DIRS = {
    "nothing": lambda ask: dirs({}),
    "a partition": lambda ask: dirs({"plain": [0]}),
    "no partition": lambda ask: dirs({"plain": []}),
    "an unknown topic": lambda ask: dirs({"unknown": [0]}),
    "an unknown partition": lambda ask: dirs({"plain": [9]}),
    "a partition twice": lambda ask: dirs({"plain": [0, 0]}),
}


def move(*dirs: tuple[str, Mapping[str, list[int]]]) -> Fields:
    return {
        "dirs": [
            {"path": path, "topics": [{"name": topic, "partitions": numbers} for topic, numbers in topics.items()]}
            for path, topics in dirs
        ]
    }


ALTER_REPLICA_LOG_DIRS = {
    "nothing": lambda ask: move(),
    "to an unknown directory": lambda ask: move(("/no/such/directory", {"plain": [0]})),
    "to a relative directory": lambda ask: move(("here", {"plain": [0]})),
    "to an empty directory name": lambda ask: move(("", {"plain": [0]})),
    "an unknown topic": lambda ask: move(("/no/such/directory", {"unknown": [0]})),
    "an unknown partition": lambda ask: move(("/no/such/directory", {"plain": [9]})),
    "an illegal topic": lambda ask: move(("/no/such/directory", {"no/name": [0]})),
}
PREFERRED, UNCLEAN = 0, 1


def elect(kind: int, topics: Mapping[str, list[int]] | None) -> Fields:
    return {
        "election_type": kind,
        "topic_partitions": None
        if topics is None
        else [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()],
        "timeout": TIMEOUT_MS,
    }


ELECT_LEADERS = {
    "nothing": lambda ask: elect(PREFERRED, {}),
    "a partition": lambda ask: elect(PREFERRED, {"plain": [0]}),
    "a partition, unclean": since(1, lambda ask: elect(UNCLEAN, {"plain": [0]})),
    "a partition twice": lambda ask: elect(PREFERRED, {"plain": [0, 0]}),
    "all": lambda ask: elect(PREFERRED, None),
    "all, unclean": since(1, lambda ask: elect(UNCLEAN, None)),
    "an unknown topic": lambda ask: elect(PREFERRED, {"unknown": [0]}),
    "an illegal topic": lambda ask: elect(PREFERRED, {"no/name": [0]}),
    "an unknown partition": lambda ask: elect(PREFERRED, {"plain": [9]}),
    "a negative partition": lambda ask: elect(PREFERRED, {"plain": [-1]}),
    "known and unknown": lambda ask: elect(PREFERRED, {"plain": [0, 9]}),
    "election type 7": since(1, lambda ask: elect(7, {"plain": [0]})),
    "no partition": lambda ask: elect(PREFERRED, {"plain": []}),
}


def reassign(*parts: tuple[str, int, list[int] | None], **changes: Any) -> Fields:
    topics: dict[str, list[Fields]] = {}
    for topic, partition, replicas in parts:
        topics.setdefault(topic, []).append({"partition_index": partition, "replicas": replicas})
    return {
        "timeout": TIMEOUT_MS,
        "allow_replication_factor_change": True,
        "topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
        **changes,
    }


ALTER_PARTITION_REASSIGNMENTS = {
    "nothing": lambda ask: reassign(),
    "to the same": lambda ask: reassign(("plain", 0, [1])),
    "to an unknown broker": lambda ask: reassign(("plain", 0, [77])),
    "to a negative broker": lambda ask: reassign(("plain", 0, [-1])),
    "to a broker twice": lambda ask: reassign(("plain", 0, [1, 1])),
    "to nobody": lambda ask: reassign(("plain", 0, [])),
    "cancel what is not there": lambda ask: reassign(("plain", 0, None)),
    "an unknown topic": lambda ask: reassign(("unknown", 0, [1])),
    "an unknown partition": lambda ask: reassign(("plain", 9, [1])),
    "a negative partition": lambda ask: reassign(("plain", -1, [1])),
    "cancel of an unknown topic": lambda ask: reassign(("unknown", 0, None)),
    "known and unknown": lambda ask: reassign(("plain", 0, [1]), ("unknown", 0, [1])),
    "a partition twice": lambda ask: reassign(("plain", 0, [1]), ("plain", 0, [1])),
    "the same number of replicas": since(
        1, lambda ask: reassign(("plain", 0, [1]), allow_replication_factor_change=False)
    ),
}


def reassignments(topics: Mapping[str, list[int]] | None) -> Fields:
    return {
        "timeout": TIMEOUT_MS,
        "topics": None
        if topics is None
        else [{"name": topic, "partition_indexes": numbers} for topic, numbers in topics.items()],
    }


LIST_PARTITION_REASSIGNMENTS = {
    "all": lambda ask: reassignments(None),
    "nothing": lambda ask: reassignments({}),
    "a partition": lambda ask: reassignments({"plain": [0]}),
    "an unknown topic": lambda ask: reassignments({"unknown": [0]}),
    "an unknown partition": lambda ask: reassignments({"plain": [9]}),
}


def acl_filter(**changes: Any) -> Fields:
    return {
        "resource_type_filter": 2,
        "resource_name_filter": None,
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
        **changes,
    }


def acl(**changes: Any) -> Fields:
    return {
        "resource_type": 2,
        "resource_name": "plain",
        "resource_pattern_type": 3,
        "principal": "User:someone",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
        **changes,
    }


DESCRIBE_ACLS = {
    "all of topics": lambda ask: acl_filter(),
    "all": lambda ask: acl_filter(resource_type_filter=1, pattern_type_filter=1),
    "resource type 0": lambda ask: acl_filter(resource_type_filter=0),
    "resource type 77": lambda ask: acl_filter(resource_type_filter=77),
    "pattern type 77": lambda ask: acl_filter(pattern_type_filter=77),
    "operation 77": lambda ask: acl_filter(operation=77),
    "permission 77": lambda ask: acl_filter(permission_type=77),
    "an empty principal": lambda ask: acl_filter(principal_filter=""),
}
CREATE_ACLS = {
    "nothing": lambda ask: {"creations": []},
    "one": lambda ask: {"creations": [acl()]},
    "two": lambda ask: {"creations": [acl(), acl(host="")]},
    "an illegal principal": lambda ask: {"creations": [acl(principal="someone")]},
    "resource type 77": lambda ask: {"creations": [acl(resource_type=77)]},
    "pattern type 0": lambda ask: {"creations": [acl(resource_pattern_type=0)]},
    "pattern type any": lambda ask: {"creations": [acl(resource_pattern_type=1)]},
    "operation 77": lambda ask: {"creations": [acl(operation=77)]},
    "any permission": lambda ask: {"creations": [acl(permission_type=1)]},
}
DELETE_ACLS = {
    "nothing": lambda ask: {"filters": []},
    "one": lambda ask: {"filters": [acl_filter()]},
    "two": lambda ask: {"filters": [acl_filter(), acl_filter(resource_type_filter=4)]},
    "resource type 77": lambda ask: {"filters": [acl_filter(resource_type_filter=77)]},
    "pattern type 77": lambda ask: {"filters": [acl_filter(pattern_type_filter=77)]},
}


def users(*names: str) -> Fields:
    return {"users": [{"name": name} for name in names]}


DESCRIBE_USER_SCRAM_CREDENTIALS = {
    "all": lambda ask: {"users": None},
    "nobody": lambda ask: users(),
    "an unknown user": lambda ask: users("nobody"),
    "an empty name": lambda ask: users(""),
    "a user twice": lambda ask: users("nobody", "nobody"),
}


def quorum(*parts: tuple[str, list[int]]) -> Fields:
    return {
        "topics": [
            {"topic_name": topic, "partitions": [{"partition_index": number} for number in numbers]}
            for topic, numbers in parts
        ]
    }


DESCRIBE_QUORUM = {
    "nothing": lambda ask: quorum(),
    "the cluster's metadata": lambda ask: quorum(("__cluster_metadata", [0])),
    "no partition": lambda ask: quorum(("__cluster_metadata", [])),
    "partition 1": lambda ask: quorum(("__cluster_metadata", [1])),
    "another topic": lambda ask: quorum(("plain", [0])),
    "two topics": lambda ask: quorum(("__cluster_metadata", [0]), ("plain", [0])),
}


def features(*updates: tuple[str, int, int], **changes: Any) -> Fields:
    """`updates` are names, levels and kinds of the upgrade."""
    return {
        "timeout": TIMEOUT_MS,
        "feature_updates": [
            {
                "feature": name,
                "max_version_level": level,
                "upgrade_type": kind,
                "allow_downgrade": kind != 1,
            }
            for name, level, kind in updates
        ],
        "validate_only": False,
        **changes,
    }


UPDATE_FEATURES = {
    "nothing": lambda ask: features(),
    "an unknown feature": lambda ask: features(("no.such.feature", 1, 1)),
    "an unknown feature, validated": since(1, lambda ask: features(("no.such.feature", 1, 1), validate_only=True)),
    "an empty name": lambda ask: features(("", 1, 1)),
    "a level that nobody has": lambda ask: features(("metadata.version", 1_000, 1)),
    "a negative level": lambda ask: features(("metadata.version", -1, 1)),
    "an unknown kind": since(1, lambda ask: features(("metadata.version", 7, 9))),
    "kind 0": since(1, lambda ask: features(("metadata.version", 7, 0))),
    "a feature twice": lambda ask: features(("no.such.feature", 1, 1), ("no.such.feature", 1, 1)),
}
UNREGISTER_BROKER = {
    "an unknown broker": lambda ask: {"broker_id": 77},
    "a negative broker": lambda ask: {"broker_id": -1},
}


def voter(node_id: int, **changes: Any) -> Fields:
    return {
        "cluster_id": None,
        "timeout": TIMEOUT_MS,
        "voter_id": node_id,
        "voter_directory_id": UNKNOWN_ID,
        "listeners": [{"name": "CONTROLLER", "host": "127.0.0.1", "port": 1}],
        "ack_when_committed": True,
        **changes,
    }


ADD_RAFT_VOTER = {
    "of another cluster": lambda ask: voter(77, cluster_id="another"),
    "a negative id": lambda ask: voter(-1),
    "no listener": lambda ask: voter(77, listeners=[]),
    "no directory": lambda ask: voter(77, voter_directory_id=None),
    "a voter": lambda ask: voter(1),
}
REMOVE_RAFT_VOTER = {
    "of another cluster": lambda ask: voter(77, cluster_id="another"),
    "a negative id": lambda ask: voter(-1),
    "an unknown voter": lambda ask: voter(77),
    "another directory": lambda ask: voter(1),
    "no directory": lambda ask: voter(77, voter_directory_id=None),
}

CASES: Cases = {
    ApiKey.ADD_RAFT_VOTER: ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER: REMOVE_RAFT_VOTER,
    ApiKey.API_VERSIONS: API_VERSIONS,
    ApiKey.DESCRIBE_CLUSTER: DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_LOG_DIRS: DESCRIBE_LOG_DIRS,
    ApiKey.ALTER_REPLICA_LOG_DIRS: ALTER_REPLICA_LOG_DIRS,
    ApiKey.ELECT_LEADERS: ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_ACLS: DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS: CREATE_ACLS,
    ApiKey.DELETE_ACLS: DELETE_ACLS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_QUORUM: DESCRIBE_QUORUM,
    ApiKey.UPDATE_FEATURES: UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER: UNREGISTER_BROKER,
}
