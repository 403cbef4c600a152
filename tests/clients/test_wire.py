"""Tests the first and the last version of Kafka's administrative requests, with kio. Clients choose what they show of
the answers, and hardly any client sends some of these requests."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.served_apis import SPOKEN
from tests.support.kafka_wire import KafkaWire
from tests.support.waiting import wait_until

TIMEOUT_S = 30
TIMEOUT_MS = 1_000 * TIMEOUT_S
TOPIC, BROKER = 2, 4
METADATA_QUORUM = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]


def ends(api_key: ApiKey) -> list[int]:
    spoken = SPOKEN[api_key]
    return sorted({spoken.min, spoken.max})


@pytest.fixture
def topic(wire: KafkaWire, name: str) -> str:
    """Three partitions on brokers 1 and 2, led by 1, known to the broker that is asked."""
    wanted = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": number, "broker_ids": [1, 2]} for number in range(3)],
        "configs": [],
    }
    answer = wire.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [wanted], "timeout": TIMEOUT_MS, "validate_only": False})
    assert [(one.error_code, one.num_partitions) for one in answer.topics] == [(ErrorCode.none, 3)]
    assert {config.name: config.value for config in answer.topics[0].configs}["cleanup.policy"] == "delete"
    wait_until(lambda: led_by(wire, name) == {0: 1, 1: 1, 2: 1})
    return name


def described(wire: KafkaWire, name: str):
    answer = wire.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [{"name": name}], "cursor": None})
    return answer.topics[0].partitions


def led_by(wire: KafkaWire, name: str) -> dict[int, int]:
    return {one.partition_index: one.leader_id for one in described(wire, name)}


def own_configs(wire: KafkaWire, name: str) -> dict[str, str]:
    resource = {"resource_type": TOPIC, "resource_name": name, "configuration_keys": None}
    answer = wire.ask(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        {"resources": [resource], "include_synonyms": False, "include_documentation": False},
    )
    dynamic_topic_config = 1
    return {
        config.name: config.value
        for config in answer.results[0].configs
        if config.config_source == dynamic_topic_config
    }


@pytest.mark.parametrize("version", ends(ApiKey.ALTER_CONFIGS))
def test_alter_configs_replaces_all_that_was_set(wire: KafkaWire, topic: str, version: int) -> None:
    def alter(**configs: str | None):
        resource = {
            "resource_type": TOPIC,
            "resource_name": topic,
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
        }
        answer = wire.ask(ApiKey.ALTER_CONFIGS, version, {"resources": [resource], "validate_only": False})
        return answer.responses[0].error_code

    assert alter(retention_ms="60000", segment_bytes="1048576") == ErrorCode.none
    assert own_configs(wire, topic) == {"retention.ms": "60000", "segment.bytes": "1048576"}
    assert alter(retention_ms="70000") == ErrorCode.none
    assert own_configs(wire, topic) == {"retention.ms": "70000"}
    assert alter(retention_ms=None) == ErrorCode.invalid_request
    assert own_configs(wire, topic) == {"retention.ms": "70000"}


@pytest.mark.parametrize("version", ends(ApiKey.INCREMENTAL_ALTER_CONFIGS))
def test_configs_without_a_value_are_refused_one_resource_at_a_time(wire: KafkaWire, topic: str, version: int) -> None:
    set_, delete = 0, 1

    def resource(name: str, operation: int, value: str | None):
        config = {"name": "retention.ms", "config_operation": operation, "value": value}
        return {"resource_type": TOPIC, "resource_name": name, "configs": [config]}

    def alter(*resources):
        answer = wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, {"resources": resources, "validate_only": False})
        return [(response.resource_name, response.error_code) for response in answer.responses]

    assert alter(
        resource("no-such-topic", set_, None), resource(topic, set_, "60000"), resource("no-such-topic", set_, "1")
    ) == [
        ("no-such-topic", ErrorCode.invalid_request),
        (topic, ErrorCode.none),
        ("no-such-topic", ErrorCode.unknown_topic_or_partition),
    ]
    assert own_configs(wire, topic) == {"retention.ms": "60000"}
    assert alter(resource(topic, delete, None)) == [(topic, ErrorCode.none)]
    assert own_configs(wire, topic) == {}


def test_list_config_resources_lists_brokers_and_topics_by_type(wire: KafkaWire, topic: str) -> None:
    def listed(*kinds: int):
        answer = wire.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": kinds})
        assert answer.error_code == ErrorCode.none
        return {
            (config_resource.resource_type, config_resource.resource_name)
            for config_resource in answer.config_resources
        }

    assert listed(BROKER) == {(BROKER, "1"), (BROKER, "2"), (BROKER, "3")}
    assert (TOPIC, topic) in listed(TOPIC)
    assert listed() >= listed(BROKER) | listed(TOPIC)
    unknown = wire.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": [99]})
    assert unknown.error_code == ErrorCode.unsupported_version
    metrics = wire.ask(ApiKey.LIST_CONFIG_RESOURCES, 0, {})
    assert (metrics.error_code, metrics.config_resources) == (ErrorCode.none, ())


@pytest.mark.parametrize("version", ends(ApiKey.ALTER_PARTITION_REASSIGNMENTS))
def test_partitions_move_and_leaders_are_elected(wire: KafkaWire, topic: str, version: int) -> None:
    def reassign(**replicas: list[int] | None):
        partitions = [{"partition_index": int(key[1:]), "replicas": value} for key, value in replicas.items()]
        answer = wire.ask(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            version,
            {"timeout": TIMEOUT_MS, "topics": [{"name": topic, "partitions": partitions}]},
        )
        assert answer.error_code == ErrorCode.none
        return {partition.partition_index: partition.error_code for partition in answer.responses[0].partitions}

    assert reassign(p0=[3, 1], p1=None, p7=[1]) == {
        0: ErrorCode.none,
        1: ErrorCode.no_reassignment_in_progress,
        7: ErrorCode.unknown_topic_or_partition,
    }

    def ongoing():
        answer = wire.ask(
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            0,
            {"timeout": TIMEOUT_MS, "topics": [{"name": topic, "partition_indexes": [0, 1]}]},
        )
        assert answer.error_code == ErrorCode.none
        return [
            (partition.partition_index, partition.adding_replicas)
            for found in answer.topics
            for partition in found.partitions
        ]

    assert ongoing() in ([], [(0, (3,))])
    wait_until(lambda: not ongoing() and set(described(wire, topic)[0].replica_nodes) == {1, 3})

    def elect(**fields):
        return wire.ask(ApiKey.ELECT_LEADERS, 2, {"election_type": 0, "timeout": TIMEOUT_MS, **fields})

    wait_until(lambda: set(described(wire, topic)[0].isr_nodes) == {1, 3})
    answer = elect(topic_partitions=[{"topic": topic, "partitions": [0, 1, 7]}])
    (results,) = answer.replica_election_results
    codes = {one.partition_id: one.error_code for one in results.partition_result}
    # The move may have made the preferred replica the leader by itself.
    assert codes.pop(0) in (ErrorCode.none, ErrorCode.election_not_needed)
    assert codes == {1: ErrorCode.election_not_needed, 7: ErrorCode.unknown_topic_or_partition}
    wait_until(lambda: led_by(wire, topic)[0] == 3)
    assert elect(topic_partitions=None).error_code == ErrorCode.none
    assert elect(topic_partitions=[]).replica_election_results == ()


@pytest.mark.parametrize("version", ends(ApiKey.DESCRIBE_LOG_DIRS))
def test_describe_log_dirs_lists_the_requested_replicas(
    bootstrap: str, wire: KafkaWire, topic: str, version: int
) -> None:
    def described_dirs(topics):
        answer = wire.ask(ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": topics})
        assert {result.error_code for result in answer.results} == {ErrorCode.none}
        return answer.results

    def replicas(topics):
        return {
            (one.name, partition.partition_index)
            for log_dir in described_dirs(topics)
            for one in log_dir.topics
            for partition in one.partitions
        }

    own = {(topic, number) for number in range(3)}
    assert own <= replicas(None)
    assert replicas([{"topic": topic, "partitions": [0, 1]}]) <= own
    assert replicas([{"topic": topic, "partitions": []}]) == set()
    assert replicas([]) == set()
    if version >= 4:
        assert all(
            0 < described_dir.usable_bytes <= described_dir.total_bytes for described_dir in described_dirs(None)
        )


@pytest.mark.parametrize("version", ends(ApiKey.ALTER_REPLICA_LOG_DIRS))
def test_alter_replica_log_dirs_accepts_the_current_directory_and_refuses_an_unknown_one(
    wire: KafkaWire, topic: str, version: int
) -> None:
    (log_dir,) = wire.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None}).results
    answer = wire.ask(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        version,
        {
            "dirs": [
                {"path": log_dir.log_dir, "topics": [{"name": topic, "partitions": [0]}]},
                {"path": "/no/such/dir", "topics": [{"name": topic, "partitions": [1]}]},
            ]
        },
    )
    codes = {
        partition.partition_index: partition.error_code for found in answer.results for partition in found.partitions
    }
    assert codes == {0: ErrorCode.none, 1: ErrorCode.log_dir_not_found}


@pytest.mark.parametrize("version", ends(ApiKey.DESCRIBE_QUORUM))
def test_describe_quorum_lists_controllers_as_voters_and_brokers_as_observers(wire: KafkaWire, version: int) -> None:
    answer = wire.ask(ApiKey.DESCRIBE_QUORUM, version, {"topics": METADATA_QUORUM})
    assert answer.error_code == ErrorCode.none
    partition = answer.topics[0].partitions[0]
    voters = {current_voter.replica_id: current_voter for current_voter in partition.current_voters}
    assert partition.leader_id in voters
    assert 0 < partition.high_watermark <= voters[partition.leader_id].log_end_offset
    assert {observer.replica_id for observer in partition.observers} >= {1, 2, 3}
    if version >= 2:
        assert {node.node_id for node in answer.nodes} == voters.keys()
        assert voters[partition.leader_id].replica_directory_id is not None
    other = wire.ask(
        ApiKey.DESCRIBE_QUORUM, version, {"topics": [{"topic_name": "x", "partitions": [{"partition_index": 0}]}]}
    )
    assert other.error_code == ErrorCode.none
    assert other.topics[0].partitions[0].error_code == ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("version", ends(ApiKey.DESCRIBE_CLUSTER))
def test_describe_cluster_lists_brokers_and_refuses_other_endpoint_types(wire: KafkaWire, version: int) -> None:
    def describe(**fields):
        return wire.ask(ApiKey.DESCRIBE_CLUSTER, version, {"include_cluster_authorized_operations": False, **fields})

    answer = describe(include_fenced_brokers=True)
    assert answer.error_code == ErrorCode.none
    assert [broker.broker_id for broker in answer.brokers] == [1, 2, 3]
    assert answer.controller_id in (1, 2, 3)
    if version >= 1:
        assert describe(endpoint_type=2, include_fenced_brokers=False).error_code == ErrorCode.mismatched_endpoint_type
        assert describe(endpoint_type=9, include_fenced_brokers=False).error_code == ErrorCode.unsupported_endpoint_type


def test_describe_topic_partitions_continues_at_the_cursor(wire: KafkaWire, topic: str) -> None:
    seen, cursor = [], None
    while True:
        asked = {"topics": [{"name": topic}, {"name": "z-none"}], "response_partition_limit": 2, "cursor": cursor}
        answer = wire.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, asked)
        seen += [
            (one.name, one.error_code, [partition.partition_index for partition in one.partitions])
            for one in answer.topics
        ]
        if (following := answer.next_cursor) is None:
            break
        cursor = {"topic_name": following.topic_name, "partition_index": following.partition_index}
    assert seen == [
        (topic, ErrorCode.none, [0, 1]),
        (topic, ErrorCode.none, [2]),
        ("z-none", ErrorCode.unknown_topic_or_partition, []),
    ]
    assert {one.replica_nodes for one in described(wire, topic)} == {(1, 2)}


def test_describe_producers_of_an_unknown_topic_is_refused_by_every_broker(bootstrap: str, name: str) -> None:
    codes = set()
    for address in bootstrap.split(","):
        with KafkaWire(address) as wire:
            asked = {"topics": [{"name": name, "partition_indexes": [0]}]}
            answer = wire.ask(ApiKey.DESCRIBE_PRODUCERS, 0, asked)
            codes |= {partition.error_code for found in answer.topics for partition in found.partitions}
    assert codes == {ErrorCode.unknown_topic_or_partition}


def test_acls_are_disabled_and_scram_users_are_unknown_without_security(wire: KafkaWire) -> None:
    anything = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    creation = {
        "resource_type": 2,
        "resource_name": "t",
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    for version in ends(ApiKey.DESCRIBE_ACLS):
        assert wire.ask(ApiKey.DESCRIBE_ACLS, version, anything).error_code == ErrorCode.security_disabled
        created = wire.ask(ApiKey.CREATE_ACLS, version, {"creations": [creation] * 2})
        assert [result.error_code for result in created.results] == [ErrorCode.security_disabled] * 2
        deleted = wire.ask(ApiKey.DELETE_ACLS, version, {"filters": [anything]})
        assert [filter_result.error_code for filter_result in deleted.filter_results] == [ErrorCode.security_disabled]
    everybody = wire.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None})
    assert (everybody.error_code, everybody.results) == (ErrorCode.none, ())
    somebody = wire.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": [{"name": "a"}]})
    assert [(result.user, result.error_code) for result in somebody.results] == [("a", ErrorCode.resource_not_found)]


def test_a_feature_update_and_the_unregistration_of_an_unknown_broker_are_refused(wire: KafkaWire) -> None:
    update = {"feature": "no.such.feature", "max_version_level": 1, "allow_downgrade": False, "upgrade_type": 1}
    asked = {"timeout": TIMEOUT_MS, "feature_updates": [update], "validate_only": False}
    for version in ends(ApiKey.UPDATE_FEATURES):
        assert wire.ask(ApiKey.UPDATE_FEATURES, version, asked).error_code == ErrorCode.invalid_update_version
    answer = wire.ask(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 99})
    assert answer.error_code == ErrorCode.broker_id_not_registered


def test_a_members_host_is_its_own_and_not_the_brokers(bootstrap: str, name: str) -> None:
    join = {
        "group_id": name,
        "session_timeout": 6_000,
        "rebalance_timeout": 6_000,
        "member_id": "",
        "group_instance_id": "one",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
        "reason": None,
    }
    with KafkaWire(coordinator_of(bootstrap, name), source="127.0.0.9") as wire:
        wait_until(lambda: wire.ask(ApiKey.JOIN_GROUP, 9, join).error_code == ErrorCode.none)
        described = wire.ask(ApiKey.DESCRIBE_GROUPS, 5, {"groups": [name], "include_authorized_operations": False})
    ((member,),) = (group.members for group in described.groups)
    assert (member.client_host, member.client_id) == ("/127.0.0.9", "wire")


def coordinator_of(bootstrap: str, key: str, key_type: int = 0) -> str:
    """Returns the address at which clients ask about a group or transactional id."""
    with KafkaWire(bootstrap) as wire:
        found = []

        def is_found() -> bool:
            asked = {"key_type": key_type, "coordinator_keys": [key]}
            found[:] = wire.ask(ApiKey.FIND_COORDINATOR, 4, asked).coordinators
            return found[0].error_code == ErrorCode.none

        wait_until(is_found)
    return f"{found[0].host}:{found[0].port}"


def test_each_group_and_transaction_is_listed_and_described_by_one_broker_only(bootstrap: str, name: str) -> None:
    """A client that asks all brokers and joins the answers must not count anything twice."""
    keys = [f"{name}-{number}" for number in range(12)]
    named = {key: (coordinator_of(bootstrap, key), coordinator_of(bootstrap, key, 1)) for key in keys}
    with KafkaWire(bootstrap) as wire:
        for key in keys:
            # Any broker passes on what members and producers send.
            join = member(key, 9, instance="one")
            wait_until(lambda join=join: wire.ask(ApiKey.JOIN_GROUP, 9, join).error_code == ErrorCode.none)
            init = {"transactional_id": key, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
            wait_until(lambda init=init: wire.ask(ApiKey.INIT_PRODUCER_ID, 4, init).error_code == ErrorCode.none)
    listed, described = [], []
    for address in bootstrap.split(","):
        with KafkaWire(address) as wire:
            groups = wire.ask(ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": []}).groups
            listed += [("group", group.group_id, address) for group in groups if group.group_id in keys]
            filters = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
            transactions = wire.ask(ApiKey.LIST_TRANSACTIONS, 1, filters).transaction_states
            listed += [
                ("id", transaction.transactional_id, address)
                for transaction in transactions
                if transaction.transactional_id in keys
            ]
            asked = {"groups": keys, "include_authorized_operations": False}
            groups = wire.ask(ApiKey.DESCRIBE_GROUPS, 5, asked).groups
            described += [(group.group_id, address, group.error_code) for group in groups]
    expected = [("group", key, group) for key, (group, _) in named.items()]
    expected += [("id", key, coordinator) for key, (_, coordinator) in named.items()]
    assert sorted(listed) == sorted(expected)
    assert sorted(one[:2] for one in described if one[2] == ErrorCode.none) == sorted(
        (key, group) for key, (group, _) in named.items()
    )
    assert {one[2] for one in described} == {ErrorCode.none, ErrorCode.not_coordinator}


def member(name: str, version: int, member_id: str = "", instance: str | None = None) -> dict[str, object]:
    return {
        "group_id": name,
        "session_timeout": 60_000,
        "rebalance_timeout": 6_000,
        "member_id": member_id,
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
        "reason": "a test" if version >= 8 else None,
    }


@pytest.mark.parametrize("version", [2, 3, 4, 9])
def test_a_first_join_gets_member_id_required_from_version_4_on(wire: KafkaWire, name: str, version: int) -> None:
    """KIP-394: before, clients do not know what to do with it."""
    wire.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [name]})
    settled = (ErrorCode.none, ErrorCode.member_id_required)
    answers = []

    def joined() -> bool:
        answers.append(wire.ask(ApiKey.JOIN_GROUP, version, member(name, version)))
        return answers[-1].error_code in settled

    wait_until(joined)
    expected = ErrorCode.none if version < 4 else ErrorCode.member_id_required
    assert (answers[-1].error_code, bool(answers[-1].member_id)) == (expected, True)
    if version >= 4:
        answer = wire.ask(ApiKey.JOIN_GROUP, version, member(name, version, answers[-1].member_id))
        assert (answer.error_code, answer.leader) == (ErrorCode.none, answers[-1].member_id)


@pytest.mark.parametrize("version", [2, 3, 5])
def test_members_leave_one_by_one_or_together(wire: KafkaWire, name: str, version: int) -> None:
    """KIP-345: from version 3 on several, also by their instance alone, as an administrator names them."""
    wire.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [name]})
    joins = []

    def joined() -> bool:
        joins.append(wire.ask(ApiKey.JOIN_GROUP, 9, member(name, 9, instance="one")))
        return joins[-1].error_code == ErrorCode.none

    wait_until(joined)
    if version < 3:
        leave = {"group_id": name, "member_id": joins[-1].member_id}
        assert wire.ask(ApiKey.LEAVE_GROUP, version, leave).error_code == ErrorCode.none
        assert wire.ask(ApiKey.LEAVE_GROUP, version, leave).error_code == ErrorCode.unknown_member_id
        return
    gone = {"member_id": "", "group_instance_id": "one", "reason": "moving house" if version >= 5 else None}
    leave = {"group_id": name, "members": [{**gone, "group_instance_id": "nobody"}, gone]}
    answer = wire.ask(ApiKey.LEAVE_GROUP, version, leave)
    assert answer.error_code == ErrorCode.none
    assert [(one.group_instance_id, one.error_code) for one in answer.members] == [
        ("nobody", ErrorCode.unknown_member_id),
        ("one", ErrorCode.none),
    ]


def metadata_of(wire: KafkaWire, name: str):
    asked = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    return wire.ask(ApiKey.METADATA, 12, {"topics": [{"name": name, "topic_id": None}], **asked}).topics[0]


def test_a_broker_that_forwarded_a_topic_change_shows_it_at_once(bootstrap: str, name: str) -> None:
    """The broker that passed the change on answers when its own metadata shows it."""
    for number, address in enumerate(bootstrap.split(",") * 3):
        topic = f"{name}-{number}"
        with KafkaWire(address) as wire:
            wanted = {"name": topic, "num_partitions": 2, "replication_factor": 2, "assignments": [], "configs": []}
            created = {"topics": [wanted], "timeout": TIMEOUT_MS, "validate_only": False}
            assert wire.ask(ApiKey.CREATE_TOPICS, 7, created).topics[0].error_code == ErrorCode.none
            found = metadata_of(wire, topic)
            assert (found.error_code, len(found.partitions)) == (ErrorCode.none, 2)
            grown = {"topics": [{"name": topic, "count": 3, "assignments": None}], "timeout": TIMEOUT_MS}
            answer = wire.ask(ApiKey.CREATE_PARTITIONS, 3, {**grown, "validate_only": False})
            assert answer.results[0].error_code == ErrorCode.none
            found = metadata_of(wire, topic)
            assert len(found.partitions) == 3
            moved = list(reversed(found.partitions[0].replica_nodes))
            partition = {"partition_index": found.partitions[0].partition_index, "replicas": moved}
            reassign = {"timeout": TIMEOUT_MS, "topics": [{"name": topic, "partitions": [partition]}]}
            answer = wire.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, reassign)
            assert answer.responses[0].partitions[0].error_code == ErrorCode.none
            by_number = {one.partition_index: list(one.replica_nodes) for one in metadata_of(wire, topic).partitions}
            assert by_number[partition["partition_index"]] == moved
            gone = {"topics": [{"name": topic, "topic_id": None}], "timeout": TIMEOUT_MS}
            assert wire.ask(ApiKey.DELETE_TOPICS, 6, gone).responses[0].error_code == ErrorCode.none
            assert metadata_of(wire, topic).error_code == ErrorCode.unknown_topic_or_partition


def test_a_topic_that_a_metadata_request_creates_is_in_its_answer(bootstrap: str, name: str) -> None:
    for number, address in enumerate(bootstrap.split(",")):
        topics = [{"name": f"{name}-{number}-{each}", "topic_id": None} for each in range(3)]
        asked = {"allow_auto_topic_creation": True, "include_topic_authorized_operations": False}
        with KafkaWire(address) as wire:
            answer = wire.ask(ApiKey.METADATA, 12, {"topics": topics, **asked})
        assert [(topic.error_code, len(topic.partitions)) for topic in answer.topics] == [(ErrorCode.none, 1)] * 3
