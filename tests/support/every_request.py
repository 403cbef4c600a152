"""One request of each Kafka API that Klamm serves, about things with one name, and the error codes in an answer."""

from __future__ import annotations

import uuid
from typing import Any

from klamm_broker.kafka.api import ApiKey
from tests.support.broker_harness import batch


def requests(name: str) -> dict[ApiKey, dict[str, Any]]:
    """Returns one request of each API, in its newest version, about a topic, group, transactional id, user ... of that
    name."""
    of_partition = {"partition_index": 0, "partition": 0}
    producer = {"producer_id": 1, "producer_epoch": 0, "transactional_id": name}
    member = {"group_id": name, "member_id": "m", "generation_id": 1, "group_instance_id": None}
    acl = {
        "resource_type": 2,
        "resource_name": name,
        "resource_pattern_type": 3,
        "principal": f"User:{name}",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    acl_filter = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    timeout = {"timeout": 5_000, "timeout_ms": 5_000, "validate_only": False}
    config = {"name": "retention.ms", "value": "1", "config_operation": 0}
    return {
        ApiKey.LIST_OFFSETS: {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": name, "partitions": [{**of_partition, "current_leader_epoch": -1, "timestamp": -1}]}],
            "timeout": 5_000,
        },
        ApiKey.METADATA: {
            "topics": [{"topic_id": None, "name": name}],
            "allow_auto_topic_creation": True,
            "include_topic_authorized_operations": True,
        },
        ApiKey.FIND_COORDINATOR: {"key_type": 0, "coordinator_keys": [name]},
        ApiKey.JOIN_GROUP: {
            **member,
            "session_timeout": 6_000,
            "rebalance_timeout": 6_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
            "reason": None,
        },
        ApiKey.HEARTBEAT: member,
        ApiKey.LEAVE_GROUP: {
            "group_id": name,
            "members": [{"member_id": "m", "group_instance_id": None, "reason": None}],
        },
        ApiKey.SYNC_GROUP: {**member, "protocol_type": "consumer", "protocol_name": "range", "assignments": []},
        ApiKey.DESCRIBE_GROUPS: {"groups": [name], "include_authorized_operations": True},
        ApiKey.LIST_GROUPS: {"states_filter": [], "types_filter": []},
        ApiKey.API_VERSIONS: {"client_software_name": "test", "client_software_version": "1"},
        ApiKey.CREATE_TOPICS: {
            **timeout,
            "topics": [{"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}],
        },
        ApiKey.DELETE_TOPICS: {**timeout, "topics": [{"name": name, "topic_id": None}]},
        ApiKey.DELETE_RECORDS: {
            **timeout,
            "topics": [{"name": name, "partitions": [{**of_partition, "offset": -1}]}],
        },
        ApiKey.INIT_PRODUCER_ID: {
            "transactional_id": name,
            "transaction_timeout": 1_000,
            "producer_id": -1,
            "producer_epoch": -1,
        },
        ApiKey.OFFSET_FOR_LEADER_EPOCH: {
            "replica_id": -1,
            "topics": [
                {"topic": name, "partitions": [{**of_partition, "current_leader_epoch": -1, "leader_epoch": 0}]}
            ],
        },
        ApiKey.ADD_PARTITIONS_TO_TXN: {
            "transactions": [{**producer, "verify_only": False, "topics": [{"name": name, "partitions": [0]}]}]
        },
        ApiKey.ADD_OFFSETS_TO_TXN: {**producer, "group_id": name},
        ApiKey.END_TXN: {**producer, "committed": True},
        ApiKey.WRITE_TXN_MARKERS: {
            "markers": [
                {
                    **producer,
                    "transaction_result": True,
                    "coordinator_epoch": 0,
                    "transaction_version": 0,
                    "topics": [{"name": name, "partition_indexes": [0]}],
                }
            ]
        },
        ApiKey.TXN_OFFSET_COMMIT: {
            **producer,
            **member,
            "topics": [
                {
                    "name": name,
                    "partitions": [
                        {
                            **of_partition,
                            "committed_offset": 1,
                            "committed_leader_epoch": -1,
                            "committed_metadata": None,
                        }
                    ],
                }
            ],
        },
        ApiKey.DESCRIBE_ACLS: acl_filter,
        ApiKey.CREATE_ACLS: {"creations": [acl]},
        ApiKey.DELETE_ACLS: {"filters": [acl_filter]},
        ApiKey.DESCRIBE_CONFIGS: {
            "resources": [{"resource_type": 2, "resource_name": name, "configuration_keys": None}],
            "include_synonyms": True,
            "include_documentation": True,
        },
        ApiKey.ALTER_CONFIGS: {
            **timeout,
            "resources": [{"resource_type": 2, "resource_name": name, "configs": [config]}],
        },
        ApiKey.ALTER_REPLICA_LOG_DIRS: {"dirs": [{"path": "/tmp", "topics": [{"name": name, "partitions": [0]}]}]},
        ApiKey.DESCRIBE_LOG_DIRS: {"topics": None},
        ApiKey.CREATE_PARTITIONS: {**timeout, "topics": [{"name": name, "count": 9, "assignments": None}]},
        ApiKey.DELETE_GROUPS: {"groups_names": [name]},
        ApiKey.ELECT_LEADERS: {
            **timeout,
            "election_type": 0,
            "topic_partitions": [{"topic": name, "partitions": [0]}],
        },
        ApiKey.INCREMENTAL_ALTER_CONFIGS: {
            **timeout,
            "resources": [{"resource_type": 2, "resource_name": name, "configs": [config]}],
        },
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: {
            **timeout,
            "allow_replication_factor_change": True,
            "topics": [{"name": name, "partitions": [{**of_partition, "replicas": [1]}]}],
        },
        ApiKey.LIST_PARTITION_REASSIGNMENTS: {**timeout, "topics": None},
        ApiKey.OFFSET_DELETE: {
            "group_id": name,
            "topics": [{"name": name, "partitions": [{"partition_index": 0}]}],
        },
        ApiKey.DESCRIBE_CLIENT_QUOTAS: {"components": [], "strict": False},
        ApiKey.ALTER_CLIENT_QUOTAS: {
            "entries": [{"entity": [{"entity_type": "user", "entity_name": name}], "ops": []}],
            "validate_only": False,
        },
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": None},
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {"deletions": [{"name": name, "mechanism": 1}], "upsertions": []},
        ApiKey.DESCRIBE_QUORUM: {
            "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        },
        ApiKey.UPDATE_FEATURES: {**timeout, "feature_updates": []},
        ApiKey.DESCRIBE_CLUSTER: {
            "include_cluster_authorized_operations": True,
            "endpoint_type": 1,
            "include_fenced_brokers": False,
        },
        ApiKey.DESCRIBE_PRODUCERS: {"topics": [{"name": name, "partition_indexes": [0]}]},
        ApiKey.UNREGISTER_BROKER: {"broker_id": 1},
        ApiKey.DESCRIBE_TRANSACTIONS: {"transactional_ids": [name]},
        ApiKey.LIST_TRANSACTIONS: {
            "state_filters": [],
            "producer_id_filters": [],
            "duration_filter": -1,
            "transactional_id_pattern": None,
        },
        ApiKey.CONSUMER_GROUP_HEARTBEAT: {
            **member,
            "member_epoch": 0,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": 6_000,
            "subscribed_topic_names": [name],
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": [],
        },
        ApiKey.CONSUMER_GROUP_DESCRIBE: {"group_ids": [name], "include_authorized_operations": True},
        ApiKey.LIST_CONFIG_RESOURCES: {"resource_types": []},
        ApiKey.ADD_RAFT_VOTER: {
            "cluster_id": None,
            "timeout": 5_000,
            "voter_id": 7,
            "voter_directory_id": uuid.UUID(int=7),
            "listeners": [{"name": "CONTROLLER", "host": "x", "port": 1}],
            "ack_when_committed": True,
        },
        ApiKey.REMOVE_RAFT_VOTER: {"cluster_id": None, "voter_id": 7, "voter_directory_id": uuid.UUID(int=7)},
    }


BY_NAME = {
    ApiKey.PRODUCE: 12,
    ApiKey.FETCH: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.TXN_OFFSET_COMMIT: 5,
}
"""The newest versions that name topics by name. Topic ids instead of names do not change who owns a topic."""


def requests_by_name(name: str) -> dict[ApiKey, dict[str, Any]]:
    partition = {
        "partition_index": 0,
        "partition": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": None,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1_000,
    }
    return {
        ApiKey.PRODUCE: {
            "transactional_id": None,
            "acks": -1,
            "timeout": 5_000,
            "topic_data": [{"name": name, "partition_data": [{"index": 0, "records": batch()}]}],
        },
        ApiKey.FETCH: {
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 1_000,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": name, "partitions": [partition]}],
            "forgotten_topics_data": [],
            "rack_id": "",
            "replica_id": -1,
        },
        ApiKey.OFFSET_COMMIT: {
            "group_id": name,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": name, "partitions": [partition]}],
        },
        ApiKey.OFFSET_FETCH: {
            "groups": [
                {
                    "group_id": name,
                    "member_id": None,
                    "member_epoch": -1,
                    "topics": [{"name": name, "partition_indexes": [0]}],
                }
            ],
            "require_stable": False,
        },
    }


def codes_in(answer: Any) -> set[int]:
    """Returns all error codes of an answer, at any depth."""
    found: set[int] = set()
    for name in getattr(answer, "__dataclass_fields__", ()):
        value = getattr(answer, name)
        if name.endswith("error_code"):
            found.add(int(value))
        for one in value if isinstance(value, tuple) else (value,):
            found |= codes_in(one)
    return found
