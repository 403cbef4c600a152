from __future__ import annotations

import pytest

from klamm.errors import ErrorCode
from klamm.wire.v1.controller_pb2 import (
    CONFIG_OPERATION_APPEND,
    CONFIG_OPERATION_DELETE,
    CONFIG_OPERATION_SET,
    CONFIG_OPERATION_SUBTRACT,
    CONFIG_SOURCE_DEFAULT,
    CONFIG_SOURCE_DYNAMIC_BROKER,
    CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER,
    CONFIG_SOURCE_DYNAMIC_TOPIC,
    CONFIG_SOURCE_STATIC_BROKER,
    AlterConfigsResource,
    ConfigChange,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm.wire.v1.metadata_pb2 import CONFIG_RESOURCE_TYPE_BROKER, CONFIG_RESOURCE_TYPE_TOPIC
from klamm_controller.metadata.configs import handle_incremental_alter_configs
from klamm_controller.metadata.describe_configs import describe_configs
from klamm_server.config.broker_configs import BROKER_CONFIGS
from klamm_server.config.topic_configs import TOPIC_CONFIGS

TOPIC_A = ConfigResource(type=CONFIG_RESOURCE_TYPE_TOPIC, name="a")
BROKER_1 = ConfigResource(type=CONFIG_RESOURCE_TYPE_BROKER, name="1")
ALL_BROKERS = ConfigResource(type=CONFIG_RESOURCE_TYPE_BROKER, name="")


def set_(name, value):
    return ConfigChange(name=name, operation=CONFIG_OPERATION_SET, value=value)


def delete(name):
    return ConfigChange(name=name, operation=CONFIG_OPERATION_DELETE)


def append(name, value):
    return ConfigChange(name=name, operation=CONFIG_OPERATION_APPEND, value=value)


def subtract(name, value):
    return ConfigChange(name=name, operation=CONFIG_OPERATION_SUBTRACT, value=value)


def alter(cluster, *resources, validate_only=False):
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource=resource, changes=changes) for resource, *changes in resources],
        validate_only=validate_only,
    )
    return cluster.apply(handle_incremental_alter_configs(request, cluster.image)).results


def describe(cluster, resource, *names, docs=False, synonyms=False):
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource=resource, names=names)],
        include_documentation=docs,
        include_synonyms=synonyms,
    )
    return describe_configs(request.resources[0], cluster.image, request)


@pytest.fixture
def cluster_with_a(one_broker):
    one_broker.create_one("a", retention_ms="1000")
    return one_broker


def test_configs_are_set_deleted_appended_and_subtracted(cluster_with_a):
    (result,) = alter(
        cluster_with_a,
        (TOPIC_A, set_("segment.ms", "7"), delete("retention.ms"), append("cleanup.policy", "compact")),
    )
    assert (result.name, result.error_code) == ("a", 0)
    assert cluster_with_a.image.topic_configs("a") == {"segment.ms": "7", "cleanup.policy": "delete,compact"}

    alter(cluster_with_a, (TOPIC_A, subtract("cleanup.policy", "delete")))
    assert cluster_with_a.image.topic_configs("a")["cleanup.policy"] == "compact"


def test_configs_are_stored_without_spaces_in_lists_and_around_values(cluster_with_a):
    cluster_with_a.create_one("b", cleanup_policy="compact , delete")
    assert cluster_with_a.image.topic_configs("b") == {"cleanup.policy": "compact,delete"}
    alter(cluster_with_a, (TOPIC_A, set_("cleanup.policy", " delete, compact"), set_("compression.type", " gzip ")))
    stored = cluster_with_a.image.topic_configs("a")
    assert (stored["cleanup.policy"], stored["compression.type"]) == ("delete,compact", "gzip")


def test_replace_all_deletes_configs_that_are_not_named(cluster_with_a):
    alter(cluster_with_a, (TOPIC_A, set_("segment.ms", "7")))
    replacement = AlterConfigsResource(resource=TOPIC_A, changes=[set_("segment.ms", "8")], replace_all=True)
    request = IncrementalAlterConfigsRequest(resources=[replacement])
    (result,) = cluster_with_a.apply(handle_incremental_alter_configs(request, cluster_with_a.image)).results
    assert result.error_code == 0
    assert cluster_with_a.image.topic_configs("a") == {"segment.ms": "8"}


def test_an_unchanged_config_makes_no_record(cluster_with_a):
    end_index = cluster_with_a.image.end_index
    (result,) = alter(cluster_with_a, (TOPIC_A, set_("retention.ms", "1000"), delete("segment.ms")))
    assert result.error_code == 0
    assert cluster_with_a.image.end_index == end_index


def test_validate_only_returns_the_same_errors_and_changes_nothing(cluster_with_a):
    end_index = cluster_with_a.image.end_index
    good = alter(cluster_with_a, (TOPIC_A, set_("retention.ms", "5")), validate_only=True)
    bad = alter(cluster_with_a, (TOPIC_A, set_("retention.ms", "x")), validate_only=True)
    assert (good[0].error_code, bad[0].error_code) == (0, ErrorCode.INVALID_CONFIG)
    assert cluster_with_a.image.end_index == end_index


REFUSED = [
    (TOPIC_A, [set_("retention.mss", "5")], ErrorCode.INVALID_CONFIG, "retention.mss"),
    (TOPIC_A, [delete("nope")], ErrorCode.INVALID_CONFIG, "nope"),
    (TOPIC_A, [set_("retention.ms", "soon")], ErrorCode.INVALID_CONFIG, "'soon'"),
    (TOPIC_A, [set_("cleanup.policy", "burn")], ErrorCode.INVALID_CONFIG, "cleanup.policy"),
    (TOPIC_A, [append("cleanup.policy", "burn")], ErrorCode.INVALID_CONFIG, "burn"),
    (TOPIC_A, [append("retention.ms", "5")], ErrorCode.INVALID_CONFIG, "not a LIST"),
    (TOPIC_A, [subtract("retention.ms", "5")], ErrorCode.INVALID_CONFIG, "not a LIST"),
    (TOPIC_A, [set_("min.compaction.lag.ms", "9"), set_("max.compaction.lag.ms", "8")], 40, "max.compaction.lag.ms=8"),
    (TOPIC_A, [set_("segment.ms", "1"), delete("segment.ms")], ErrorCode.INVALID_REQUEST, "segment.ms"),
    (TOPIC_A, [ConfigChange(name="segment.ms", operation=9)], ErrorCode.INVALID_REQUEST, "operation 9"),
    (ConfigResource(type=CONFIG_RESOURCE_TYPE_TOPIC, name="b"), [], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "'b'"),
    (ConfigResource(type=8, name="a"), [], ErrorCode.INVALID_REQUEST, "type 8"),
    (ConfigResource(type=CONFIG_RESOURCE_TYPE_BROKER, name="9"), [], ErrorCode.BROKER_ID_NOT_REGISTERED, "broker 9"),
    (ConfigResource(type=CONFIG_RESOURCE_TYPE_BROKER, name="01"), [], ErrorCode.INVALID_REQUEST, "'01'"),
    (ConfigResource(type=CONFIG_RESOURCE_TYPE_BROKER, name="one"), [], ErrorCode.INVALID_REQUEST, "'one'"),
    (BROKER_1, [set_("node.id", "7")], ErrorCode.INVALID_REQUEST, "node.id is read-only"),
    (BROKER_1, [set_("log.cleaner.threads", "many")], ErrorCode.INVALID_REQUEST, "log.cleaner.threads: 'many'"),
    (ALL_BROKERS, [set_("log.scrub.bytes.per.second", "0")], ErrorCode.INVALID_REQUEST, "expected at least 1"),
    (
        BROKER_1,
        [set_("log.cleaner.threads", "3")],
        ErrorCode.INVALID_REQUEST,
        "expected 1 to 2, because the current value is 1",
    ),
    (
        ALL_BROKERS,
        [set_("log.cleaner.threads", "2"), set_("log.cleaner.dedupe.buffer.size", "1048576")],
        ErrorCode.INVALID_REQUEST,
        "broker 1: log.cleaner.dedupe.buffer.size=1048576: expected at least 1048576 for each",
    ),
    (ALL_BROKERS, [set_("retention.ms", "7")], ErrorCode.INVALID_CONFIG, "retention.ms"),
]


@pytest.mark.parametrize(("resource", "changes", "code", "said"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_a_bad_config_is_refused_with_all_changes_of_its_resource(cluster_with_a, resource, changes, code, said):
    cluster_with_a.create_one("c")
    topic_c = ConfigResource(type=CONFIG_RESOURCE_TYPE_TOPIC, name="c")
    refused, done = alter(
        cluster_with_a,
        (resource, set_("preallocate", "true"), *changes) if resource == TOPIC_A else (resource, *changes),
        (topic_c, set_("segment.ms", "3")),
    )
    assert (refused.error_code, refused.name) == (code, resource.name)
    assert said in refused.error_message
    assert done.error_code == 0
    assert cluster_with_a.image.topic_configs("a") == {"retention.ms": "1000"}
    assert cluster_with_a.image.topic_configs("c") == {"segment.ms": "3"}
    assert not cluster_with_a.image.broker_configs(1)
    assert not cluster_with_a.image.broker_configs(None)


def test_a_resource_that_is_named_twice_is_not_changed(cluster_with_a):
    results = alter(cluster_with_a, (TOPIC_A, set_("segment.ms", "1")), (TOPIC_A, set_("segment.ms", "2")))
    assert [r.error_code for r in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert cluster_with_a.image.topic_configs("a") == {"retention.ms": "1000"}


def test_a_change_is_validated_together_with_the_current_configs(cluster_with_a):
    alter(cluster_with_a, (TOPIC_A, set_("max.compaction.lag.ms", "8")))
    (refused,) = alter(cluster_with_a, (TOPIC_A, set_("min.compaction.lag.ms", "9")))
    assert refused.error_code == ErrorCode.INVALID_CONFIG


def test_a_topics_configs_have_their_values_and_sources(cluster):
    cluster.add_broker(
        1, static_configs={"log.segment.bytes": "2097152", "log.roll.hours": "2", "log.index.interval.bytes": "9"}
    )
    cluster.create_one("a", retention_ms="1000")
    alter(cluster, (ALL_BROKERS, set_("log.index.interval.bytes", "11")))

    found = {c.name: (c.value, c.source) for c in describe(cluster, TOPIC_A).configs}

    assert found["retention.ms"] == ("1000", CONFIG_SOURCE_DYNAMIC_TOPIC)
    assert found["index.interval.bytes"] == ("11", CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER)
    assert found["segment.bytes"] == ("2097152", CONFIG_SOURCE_STATIC_BROKER)
    assert found["segment.ms"] == ("7200000", CONFIG_SOURCE_STATIC_BROKER)
    assert found["preallocate"] == ("false", CONFIG_SOURCE_DEFAULT)
    assert sorted(found) == list(found)
    assert set(found) == set(TOPIC_CONFIGS)


def test_a_brokers_configs_have_their_values_and_sources(cluster):
    cluster.add_broker(1, static_configs={"log.segment.bytes": "2097152"})
    cluster.add_broker(2)
    alter(
        cluster,
        (BROKER_1, set_("log.preallocate", "true")),
        (ALL_BROKERS, set_("log.preallocate", "false"), set_("log.retention.bytes", "5")),
    )
    found = {c.name: (c.value, c.source) for c in describe(cluster, BROKER_1).configs}
    assert found["log.preallocate"] == ("true", CONFIG_SOURCE_DYNAMIC_BROKER)
    assert found["log.retention.bytes"] == ("5", CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER)
    assert found["log.segment.bytes"] == ("2097152", CONFIG_SOURCE_STATIC_BROKER)
    assert found["num.partitions"] == ("1", CONFIG_SOURCE_DEFAULT)
    assert set(found) == set(BROKER_CONFIGS)

    broker_2 = ConfigResource(type=CONFIG_RESOURCE_TYPE_BROKER, name="2")
    (other,) = describe(cluster, broker_2, "log.preallocate").configs
    assert (other.value, other.source) == ("false", CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER)


def test_listener_configs_of_a_broker_are_described_and_read_only(cluster):
    name = "listener.name.kafka.max.connections"
    cluster.add_broker(1, static_configs={name: "5", "max.connections": "7"})
    (found,) = describe(cluster, BROKER_1, name, synonyms=True).configs
    assert (found.value, found.source, found.read_only) == ("5", CONFIG_SOURCE_STATIC_BROKER, True)
    assert [(synonym.name, synonym.value) for synonym in found.synonyms] == [
        (name, "5"),
        ("max.connections", "7"),
        ("max.connections", "100000"),
    ]
    (refused,) = alter(cluster, (BROKER_1, set_(name, "6")))
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert refused.error_message == f"{name} is read-only: set it in the broker's own file"


RELOGIN = "sasl.kerberos.min.time.before.relogin"


def test_a_kafka_config_without_effect_is_stored_and_described_only_if_it_is_set(cluster):
    cluster.add_broker(1, static_configs={"num.network.threads": "9"})
    cluster.add_broker(2)
    assert not describe(cluster, BROKER_1, RELOGIN, "num.io.threads").configs
    results = alter(cluster, (BROKER_1, set_(RELOGIN, "58000")), (ALL_BROKERS, set_("num.io.threads", "16")))
    assert [result.error_code for result in results] == [0, 0]
    assert cluster.image.broker_configs(1) == {RELOGIN: "58000"}

    found = {config.name: config for config in describe(cluster, BROKER_1, docs=True).configs}
    assert set(found) == {*BROKER_CONFIGS, RELOGIN, "num.io.threads", "num.network.threads"}
    relogin = found[RELOGIN]
    assert (relogin.value, relogin.source, relogin.type) == ("58000", CONFIG_SOURCE_DYNAMIC_BROKER, "LONG")
    assert (relogin.default_value, relogin.read_only, relogin.sensitive) == ("60000", False, False)
    assert "has no effect" in relogin.documentation
    assert found["num.io.threads"].source == CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER
    assert (found["num.network.threads"].value, found["num.network.threads"].source) == (
        "9",
        CONFIG_SOURCE_STATIC_BROKER,
    )
    assert synonyms_of(cluster, BROKER_1, RELOGIN) == [
        (RELOGIN, "58000", CONFIG_SOURCE_DYNAMIC_BROKER),
        (RELOGIN, "60000", CONFIG_SOURCE_DEFAULT),
    ]
    assert [config.name for config in describe(cluster, ALL_BROKERS).configs] == ["num.io.threads"]
    alter(cluster, (BROKER_1, delete(RELOGIN)))
    assert not describe(cluster, BROKER_1, RELOGIN).configs


def test_a_list_config_without_effect_can_be_appended_to(cluster):
    cluster.add_broker(1)
    (done,) = alter(cluster, (BROKER_1, append("sasl.kerberos.principal.to.local.rules", "RULE:x")))
    assert done.error_code == 0
    assert cluster.image.broker_configs(1) == {"sasl.kerberos.principal.to.local.rules": "DEFAULT,RULE:x"}


@pytest.mark.parametrize(
    ("resource", "name", "value", "message"),
    [
        (BROKER_1, "broker.id", "3", "broker.id is read-only: set it in the broker's own file"),
        (BROKER_1, "offsets.retention.minutes", "3", "offsets.retention.minutes is read-only: coordinators read it"),
        (ALL_BROKERS, RELOGIN, "3", f"{RELOGIN} can only be set on a single broker"),
        (BROKER_1, RELOGIN, "soon", f"{RELOGIN}: 'soon' is not valid, expected a whole number of 64 bits"),
        (
            BROKER_1,
            f"listener.name.x.{RELOGIN}",
            "3",
            f"listener.name.x.{RELOGIN} is read-only: set it in the broker's",
        ),
    ],
)
def test_a_kafka_config_without_effect_is_refused_in_the_same_cases_as_in_kafka(
    cluster, resource, name, value, message
):
    cluster.add_broker(1)
    (refused,) = alter(cluster, (resource, set_(name, value)))
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert refused.error_message.startswith(message)


def test_a_config_name_that_kafka_does_not_know_is_unknown(cluster):
    cluster.add_broker(1)
    (refused,) = alter(cluster, (BROKER_1, set_("num.io.thread", "3")))
    message = "unknown config num.io.thread; did you mean num.io.threads?"
    assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_CONFIG, message)
    cluster.create_one("a")
    (refused,) = alter(cluster, (TOPIC_A, set_("num.io.threads", "3")))
    assert refused.error_code == ErrorCode.INVALID_CONFIG


def test_a_password_config_without_effect_is_not_stored_in_the_metadata(cluster):
    cluster.add_broker(1)
    (done,) = alter(cluster, (BROKER_1, set_("sasl.jaas.config", "hunter2")))
    assert done.error_code == 0
    assert cluster.image.broker_configs(1) == {"sasl.jaas.config": "[hidden]"}
    (found,) = describe(cluster, BROKER_1, "sasl.jaas.config", synonyms=True).configs
    assert (found.value, found.sensitive, found.source) == ("", True, CONFIG_SOURCE_DYNAMIC_BROKER)
    assert [synonym.value for synonym in found.synonyms] == [""]


def test_a_config_change_is_validated_against_the_current_value_of_each_broker(cluster):
    cluster.add_broker(1, static_configs={"log.cleaner.threads": "4"})
    cluster.add_broker(2)
    (refused,) = alter(cluster, (ALL_BROKERS, set_("log.cleaner.threads", "1")))
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "broker 1: log.cleaner.threads: 1 is not valid, expected 2 to 8, because the current value is 4",
    )
    (done,) = alter(cluster, (BROKER_1, set_("log.cleaner.threads", "8")))
    assert done.error_code == 0
    (done,) = alter(cluster, (ALL_BROKERS, set_("log.cleaner.threads", "2")))
    assert done.error_code == 0, "broker 1 has a value of its own, and broker 2 goes from 1 to 2"
    (refused,) = alter(cluster, (BROKER_1, delete("log.cleaner.threads")))
    assert "expected 4 to 16, because the current value is 8" in refused.error_message


def test_unreadable_static_configs_of_a_broker_do_not_block_a_change(cluster):
    cluster.add_broker(1, static_configs={"log.cleaner.threads": "four", "of.the.future": "7"})
    (done,) = alter(cluster, (BROKER_1, set_("log.cleaner.threads", "9")))
    assert done.error_code == 0


def synonyms_of(cluster, resource, name):
    (config,) = describe(cluster, resource, name, synonyms=True).configs
    return [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms]


def test_a_topics_synonyms_are_listed_by_precedence_down_to_the_default(cluster):
    cluster.add_broker(1, static_configs={"log.retention.bytes": "7", "log.retention.hours": "2"})
    cluster.create_one("a", retention_bytes="5")
    alter(cluster, (ALL_BROKERS, set_("log.retention.bytes", "6")))

    assert synonyms_of(cluster, TOPIC_A, "retention.bytes") == [
        ("retention.bytes", "5", CONFIG_SOURCE_DYNAMIC_TOPIC),
        ("log.retention.bytes", "6", CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER),
        ("log.retention.bytes", "7", CONFIG_SOURCE_STATIC_BROKER),
        ("log.retention.bytes", "-1", CONFIG_SOURCE_DEFAULT),
    ]
    # As in Kafka, hours and minutes are listed only after milliseconds.
    assert synonyms_of(cluster, TOPIC_A, "retention.ms") == []
    alter(cluster, (ALL_BROKERS, set_("log.retention.ms", "9")))
    assert synonyms_of(cluster, TOPIC_A, "retention.ms") == [
        ("log.retention.ms", "9", CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER),
        ("log.retention.hours", "2", CONFIG_SOURCE_STATIC_BROKER),
        ("log.retention.hours", "168", CONFIG_SOURCE_DEFAULT),
    ]
    assert synonyms_of(cluster, TOPIC_A, "remote.storage.enable") == []
    assert not describe(cluster, TOPIC_A, "retention.bytes").configs[0].synonyms


def test_a_brokers_synonyms_are_listed_by_precedence_down_to_the_default(cluster):
    cluster.add_broker(1, static_configs={"log.retention.hours": "2"})
    alter(cluster, (BROKER_1, set_("log.preallocate", "true")), (ALL_BROKERS, set_("log.preallocate", "false")))

    assert synonyms_of(cluster, BROKER_1, "log.preallocate") == [
        ("log.preallocate", "true", CONFIG_SOURCE_DYNAMIC_BROKER),
        ("log.preallocate", "false", CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER),
        ("log.preallocate", "false", CONFIG_SOURCE_DEFAULT),
    ]
    assert synonyms_of(cluster, BROKER_1, "log.retention.hours") == [
        ("log.retention.hours", "2", CONFIG_SOURCE_STATIC_BROKER),
        ("log.retention.hours", "168", CONFIG_SOURCE_DEFAULT),
    ]
    assert synonyms_of(cluster, BROKER_1, "log.retention.ms") == []
    assert synonyms_of(cluster, ALL_BROKERS, "log.preallocate") == [
        ("log.preallocate", "false", CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER)
    ]


def test_a_config_without_a_value_differs_from_an_empty_one(cluster_with_a):
    (unset,) = describe(cluster_with_a, BROKER_1, "log.retention.ms").configs
    (empty,) = describe(cluster_with_a, TOPIC_A, "leader.replication.throttled.replicas").configs
    assert (unset.value, unset.has_no_value) == ("", True)
    assert (empty.value, empty.has_no_value) == ("", False)


def test_the_cluster_wide_broker_default_describes_only_its_own_configs(cluster_with_a):
    alter(cluster_with_a, (ALL_BROKERS, set_("log.retention.bytes", "5")))
    assert [(c.name, c.value) for c in describe(cluster_with_a, ALL_BROKERS).configs] == [("log.retention.bytes", "5")]


def test_a_described_config_has_type_default_and_documentation(cluster_with_a):
    (config,) = describe(cluster_with_a, TOPIC_A, "retention.ms", "nope", docs=True).configs
    assert (config.name, config.value, config.type) == ("retention.ms", "1000", "LONG")
    assert config.default_value == "604800000"
    assert not config.read_only
    assert config.documentation
    (bare,) = describe(cluster_with_a, TOPIC_A, "retention.ms").configs
    assert not bare.documentation
    (read_only,) = describe(cluster_with_a, BROKER_1, "node.id").configs
    assert read_only.read_only


def test_describing_an_unknown_topic_or_broker_is_refused(cluster_with_a):
    unknown = ConfigResource(type=CONFIG_RESOURCE_TYPE_TOPIC, name="nope")
    assert describe(cluster_with_a, unknown).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    illegal = ConfigResource(type=CONFIG_RESOURCE_TYPE_TOPIC, name="no/pe")
    assert describe(cluster_with_a, illegal).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    broker = ConfigResource(type=CONFIG_RESOURCE_TYPE_BROKER, name="77")
    assert describe(cluster_with_a, broker).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
