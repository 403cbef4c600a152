"""Questions about topics, partitions and configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klamm_broker.kafka.api import ApiKey
from tests.clients.judge.side import TIMEOUT_MS, UNKNOWN_ID, Ask, Case, Cases, since

Fields = Mapping[str, Any]
LONG_NAME = "x" * 250
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def metadata(*topics: Fields, **changes: Any) -> Fields:
    return {
        "topics": topics,
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
        **changes,
    }


def named(name: str | None, topic_id: Any = None) -> Fields:
    return {"name": name, "topic_id": topic_id}


METADATA = {
    "nothing": lambda ask: metadata(),
    "a topic": lambda ask: metadata(named("plain")),
    "two topics": lambda ask: metadata(named("plain"), named("empty")),
    "a topic twice": lambda ask: metadata(named("plain"), named("plain")),
    # Before version 4 it is created.
    "an unknown topic": lambda ask: metadata(named(ask.name)),
    "known and unknown": lambda ask: metadata(named("plain"), named(ask.name)),
    "an unknown topic, to be created": lambda ask: metadata(named(ask.name), allow_auto_topic_creation=True),
    "an illegal topic": lambda ask: metadata(named("no/name")),
    "an illegal topic, to be created": lambda ask: metadata(named("no/name"), allow_auto_topic_creation=True),
    "a long name": lambda ask: metadata(named(LONG_NAME)),
    "a long name, to be created": lambda ask: metadata(named(LONG_NAME), allow_auto_topic_creation=True),
    "an empty name": lambda ask: metadata(named("")),
    "an empty name, to be created": lambda ask: metadata(named(""), allow_auto_topic_creation=True),
    "a dot, to be created": lambda ask: metadata(named("."), allow_auto_topic_creation=True),
    "the cluster's metadata": lambda ask: metadata(named("__cluster_metadata")),
    "a topic by id": since(12, lambda ask: metadata(named(None, ask.topic_id("plain")))),
    "an unknown id": since(12, lambda ask: metadata(named(None, UNKNOWN_ID))),
    "name and id": since(12, lambda ask: metadata(named("plain", ask.topic_id("plain")))),
    "neither name nor id": since(12, lambda ask: metadata(named(None))),
    "a null name": since(10, lambda ask: metadata(named(None))),
    "names and ids mixed": since(12, lambda ask: metadata(named("plain"), named(None, ask.topic_id("empty")))),
    "an id in older versions": Case(lambda ask: metadata(named("plain", ask.topic_id("plain"))), since=10, until=11),
    "authorized operations": since(
        8,
        lambda ask: metadata(
            named("plain"), include_topic_authorized_operations=True, include_cluster_authorized_operations=True
        ),
    ),
    "authorized operations of an unknown topic": since(
        8, lambda ask: metadata(named("unknown"), include_topic_authorized_operations=True)
    ),
}


def creation(name: str, **changes: Any) -> Fields:
    return {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
        **changes,
    }


def create(*wanted: Fields, **changes: Any) -> Fields:
    return {"topics": wanted, "timeout": TIMEOUT_MS, "validate_only": False, **changes}


def new(ask: Ask, **changes: Any) -> Fields:
    return create(creation(ask.name, **changes))


def config(name: str, value: str | None) -> list[Fields]:
    return [{"name": name, "value": value}]


def assigned(*parts: tuple[int, list[int]]) -> Fields:
    assignments = [{"partition_index": number, "broker_ids": brokers} for number, brokers in parts]
    return {"num_partitions": -1, "replication_factor": -1, "assignments": assignments}


CREATE_TOPICS = {
    "nothing": lambda ask: create(),
    "a topic": lambda ask: new(ask),
    "a topic, validated": lambda ask: create(creation(ask.name), validate_only=True),
    "a known topic": lambda ask: create(creation("plain")),
    "a known topic, validated": lambda ask: create(creation("plain"), validate_only=True),
    "a topic twice": lambda ask: create(creation(ask.name), creation(ask.name)),
    "a topic twice beside another": lambda ask: create(
        creation(ask.name), creation(ask.name), creation(ask.name + "-other")
    ),
    "default partitions": since(4, lambda ask: new(ask, num_partitions=-1, replication_factor=-1)),
    "no partitions": lambda ask: new(ask, num_partitions=0),
    "partitions -2": lambda ask: new(ask, num_partitions=-2),
    "no replicas": lambda ask: new(ask, replication_factor=0),
    "replicas -2": lambda ask: new(ask, replication_factor=-2),
    "more replicas than brokers": lambda ask: new(ask, replication_factor=3),
    "a name that collides with a topic's": lambda ask: create(creation("a_dot"), creation("plain")),
    "an illegal name": lambda ask: create(creation("no/name")),
    "a space": lambda ask: create(creation("no name")),
    "an empty name": lambda ask: create(creation("")),
    "a dot": lambda ask: create(creation(".")),
    "two dots": lambda ask: create(creation("..")),
    "a long name": lambda ask: create(creation(LONG_NAME)),
    "a name that collides": lambda ask: create(creation(f"{ask.name}.a"), creation(f"{ask.name}_a")),
    "an internal name": lambda ask: create(creation("__cluster_metadata")),
    "an unknown config": lambda ask: new(ask, configs=config("no.such.config", "1")),
    "an illegal config value": lambda ask: new(ask, configs=config("retention.ms", "long")),
    "a config value out of range": lambda ask: new(ask, configs=config("segment.bytes", "-5")),
    "a null config value": lambda ask: new(ask, configs=config("retention.ms", None)),
    "an empty config value": lambda ask: new(ask, configs=config("retention.ms", "")),
    "an empty config name": lambda ask: new(ask, configs=config("", "1")),
    "a config twice": lambda ask: new(ask, configs=config("retention.ms", "1") + config("retention.ms", "2")),
    "a config": lambda ask: new(ask, configs=config("cleanup.policy", "compact,delete")),
    "an illegal cleanup policy": lambda ask: new(ask, configs=config("cleanup.policy", "burn")),
    "an assignment": lambda ask: new(ask, **assigned((0, [1]))),
    "an assignment of two partitions": lambda ask: new(ask, **assigned((0, [1]), (1, [1]))),
    "an assignment with a number of partitions": lambda ask: new(
        ask, **{**assigned((0, [1])), "num_partitions": 1, "replication_factor": 1}
    ),
    "an assignment to an unknown broker": lambda ask: new(ask, **assigned((0, [77]))),
    "an assignment to a negative broker": lambda ask: new(ask, **assigned((0, [-1]))),
    "an assignment to a broker twice": lambda ask: new(ask, **assigned((0, [1, 1]))),
    "an assignment to no broker": lambda ask: new(ask, **assigned((0, []))),
    "an assignment with a gap": lambda ask: new(ask, **assigned((0, [1]), (2, [1]))),
    "an assignment from 1 on": lambda ask: new(ask, **assigned((1, [1]))),
    "an assignment of a partition twice": lambda ask: new(ask, **assigned((0, [1]), (0, [1]))),
    "an assignment of a negative partition": lambda ask: new(ask, **assigned((-1, [1]))),
    "good and bad": lambda ask: create(creation(ask.name), creation("no/name"), creation("plain")),
    "too many partitions": lambda ask: new(ask, num_partitions=10_001),
}


def delete(*names: str, by_id: tuple[Any, ...] = ()) -> Fields:
    wanted = [{"name": name, "topic_id": None} for name in names]
    wanted += [{"name": None, "topic_id": topic_id} for topic_id in by_id]
    return {"topic_names": names, "topics": wanted, "timeout": TIMEOUT_MS}


DELETE_TOPICS = {
    "nothing": lambda ask: delete(),
    "a topic": lambda ask: delete(ask.topic()),
    "a topic twice": lambda ask: delete(ask.topic(), ask.name),
    "an unknown topic": lambda ask: delete("unknown"),
    "known and unknown": lambda ask: delete(ask.topic(), "unknown"),
    "an illegal topic": lambda ask: delete("no/name"),
    "an empty name": lambda ask: delete(""),
    "a topic by id": since(6, lambda ask: delete(by_id=(ask.topic_id(ask.topic()),))),
    "an unknown id": since(6, lambda ask: delete(by_id=(UNKNOWN_ID,))),
    "name and id": since(6, lambda ask: delete(ask.topic(), by_id=(ask.topic_id(ask.name),))),
    "both in one": since(
        6, lambda ask: {"topics": [{"name": ask.topic(), "topic_id": ask.topic_id(ask.name)}], "timeout": TIMEOUT_MS}
    ),
    "neither": since(6, lambda ask: {"topics": [{"name": None, "topic_id": None}], "timeout": TIMEOUT_MS}),
    "no time": lambda ask: {**delete(ask.topic()), "timeout": 0},
}


def grow(*wanted: tuple[str, int, list[list[int]] | None], **changes: Any) -> Fields:
    topics = [
        {
            "name": name,
            "count": count,
            "assignments": None if assignments is None else [{"broker_ids": brokers} for brokers in assignments],
        }
        for name, count, assignments in wanted
    ]
    return {"topics": topics, "timeout": TIMEOUT_MS, "validate_only": False, **changes}


CREATE_PARTITIONS = {
    "nothing": lambda ask: grow(),
    "more": lambda ask: grow((ask.topic(), 3, None)),
    "more, validated": lambda ask: grow(("empty", 3, None), validate_only=True),
    "no more": lambda ask: grow(("plain", 2, None)),
    "fewer": lambda ask: grow(("plain", 1, None)),
    "none": lambda ask: grow(("plain", 0, None)),
    "negative": lambda ask: grow(("plain", -1, None)),
    "of an unknown topic": lambda ask: grow(("unknown", 3, None)),
    "of an illegal topic": lambda ask: grow(("no/name", 3, None)),
    "of an empty name": lambda ask: grow(("", 3, None)),
    "of a topic twice": lambda ask: grow((ask.topic(), 3, None), (ask.name, 4, None)),
    "assigned": lambda ask: grow((ask.topic(), 2, [[1]])),
    "too few assigned": lambda ask: grow((ask.topic(), 3, [[1]])),
    "too many assigned": lambda ask: grow((ask.topic(), 2, [[1], [1]])),
    "none assigned": lambda ask: grow((ask.topic(), 2, [])),
    "assigned to an unknown broker": lambda ask: grow((ask.topic(), 2, [[77]])),
    "assigned to a broker twice": lambda ask: grow((ask.topic(), 2, [[1, 1]])),
    "assigned to nobody": lambda ask: grow((ask.topic(), 2, [[]])),
}


def describe(*resources: tuple[int, str, list[str] | None], **changes: Any) -> Fields:
    wanted = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": keys} for kind, name, keys in resources
    ]
    return {"resources": wanted, "include_synonyms": False, "include_documentation": False, **changes}


DESCRIBE_CONFIGS = {
    "nothing": lambda ask: describe(),
    "one of a topic": lambda ask: describe((TOPIC, "compacted", ["cleanup.policy"])),
    "one of a topic with synonyms": lambda ask: describe(
        (TOPIC, "compacted", ["cleanup.policy"]), include_synonyms=True
    ),
    "an unknown one": lambda ask: describe((TOPIC, "plain", ["no.such.config"])),
    "none": lambda ask: describe((TOPIC, "no-topic-of-all", [])),
    "one twice": lambda ask: describe((TOPIC, "plain", ["cleanup.policy", "cleanup.policy"])),
    "a topic twice": lambda ask: describe((TOPIC, "plain", ["cleanup.policy"]), (TOPIC, "plain", ["retention.ms"])),
    "an unknown topic": lambda ask: describe((TOPIC, "unknown", None)),
    "an illegal topic": lambda ask: describe((TOPIC, "no/name", None)),
    "an empty topic": lambda ask: describe((TOPIC, "", None)),
    "one of a broker": lambda ask: describe((BROKER, "1", ["log.retention.ms"])),
    "an unknown broker": lambda ask: describe((BROKER, "77", None)),
    "a broker of letters": lambda ask: describe((BROKER, "one", None)),
    "the default broker": lambda ask: describe((BROKER, "", ["log.retention.ms"])),
    "an unknown logger": lambda ask: describe((BROKER_LOGGER, "77", None)),
    "a logger of letters": lambda ask: describe((BROKER_LOGGER, "one", None)),
    "client metrics": lambda ask: describe((CLIENT_METRICS, "unknown", [])),
    "a group": lambda ask: describe((GROUP, "unknown", ["no.such.config"])),
    "an empty group": lambda ask: describe((GROUP, "", None)),
    "type 0": lambda ask: describe((0, "x", None)),
    "type 1": lambda ask: describe((1, "x", None)),
    "type 77": lambda ask: describe((77, "x", None)),
    "known and unknown": lambda ask: describe((TOPIC, "plain", ["cleanup.policy"]), (TOPIC, "unknown", None)),
}


def alter(kind: int, name: str, *configs: tuple[str, str | None], **changes: Any) -> Fields:
    wanted = [{"name": key, "value": value} for key, value in configs]
    return {
        "resources": [{"resource_type": kind, "resource_name": name, "configs": wanted}],
        "validate_only": False,
        **changes,
    }


ALTER_CONFIGS = {
    "nothing": lambda ask: {"resources": [], "validate_only": False},
    "a topic": lambda ask: alter(TOPIC, ask.topic(), ("retention.ms", "-1")),
    "nothing of a topic": lambda ask: alter(TOPIC, ask.topic()),
    "validated": lambda ask: alter(TOPIC, "plain", ("retention.ms", "-1"), validate_only=True),
    "an unknown config": lambda ask: alter(TOPIC, "plain", ("no.such.config", "1")),
    "an illegal value": lambda ask: alter(TOPIC, "plain", ("retention.ms", "long")),
    "a null value": lambda ask: alter(TOPIC, "plain", ("retention.ms", None)),
    "an empty value": lambda ask: alter(TOPIC, "plain", ("retention.ms", "")),
    "a config twice": lambda ask: alter(TOPIC, ask.topic(), ("retention.ms", "-1"), ("retention.ms", "-1")),
    "an unknown topic": lambda ask: alter(TOPIC, "unknown", ("retention.ms", "-1")),
    "an illegal topic": lambda ask: alter(TOPIC, "no/name", ("retention.ms", "-1")),
    "an empty topic": lambda ask: alter(TOPIC, "", ("retention.ms", "-1")),
    "a topic twice": Case(
        lambda ask: {
            "resources": alter(TOPIC, "plain", ("retention.ms", "-1"))["resources"] * 2,
            "validate_only": True,
        },
        until=0,
    ),
    "an unknown broker": lambda ask: alter(BROKER, "77", ("log.cleaner.threads", "1")),
    "a broker of letters": lambda ask: alter(BROKER, "one", ("log.cleaner.threads", "1")),
    "a fixed config of a broker": lambda ask: alter(BROKER, "1", ("log.dirs", "/tmp"), validate_only=True),
    "an unknown config of a broker": lambda ask: alter(BROKER, "1", ("no.such.config", "1"), validate_only=True),
    "type 0": lambda ask: alter(0, "x", ("a", "b")),
    "type 77": lambda ask: alter(77, "x", ("a", "b")),
}
SET, DELETE, APPEND, SUBTRACT = range(4)


def change(kind: int, name: str, *configs: tuple[str, int, str | None], **changes: Any) -> Fields:
    wanted = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in configs]
    return {
        "resources": [{"resource_type": kind, "resource_name": name, "configs": wanted}],
        "validate_only": False,
        **changes,
    }


INCREMENTAL_ALTER_CONFIGS = {
    "nothing": lambda ask: {"resources": [], "validate_only": False},
    "nothing of a topic": lambda ask: change(TOPIC, "plain"),
    "set": lambda ask: change(TOPIC, ask.topic(), ("retention.ms", SET, "-1")),
    "delete": lambda ask: change(TOPIC, ask.topic(), ("retention.ms", DELETE, None)),
    "delete with a value": lambda ask: change(TOPIC, ask.topic(), ("retention.ms", DELETE, "7")),
    "delete what is not set": lambda ask: change(TOPIC, ask.topic(), ("segment.ms", DELETE, None)),
    "append": lambda ask: change(TOPIC, ask.topic(), ("cleanup.policy", APPEND, "compact")),
    "append what is there": lambda ask: change(TOPIC, ask.topic(), ("cleanup.policy", APPEND, "delete")),
    "append an illegal value": lambda ask: change(TOPIC, ask.topic(), ("cleanup.policy", APPEND, "burn")),
    "append to what is no list": lambda ask: change(TOPIC, "plain", ("retention.ms", APPEND, "1")),
    "subtract": lambda ask: change(TOPIC, "plain", ("cleanup.policy", SUBTRACT, "compact"), validate_only=True),
    "subtract all": lambda ask: change(TOPIC, "plain", ("cleanup.policy", SUBTRACT, "delete"), validate_only=True),
    "subtract from what is no list": lambda ask: change(TOPIC, "plain", ("retention.ms", SUBTRACT, "1")),
    "operation 7": lambda ask: change(TOPIC, "plain", ("retention.ms", 7, "1")),
    "operation -1": lambda ask: change(TOPIC, "plain", ("retention.ms", -1, "1")),
    "set null": lambda ask: change(TOPIC, "plain", ("retention.ms", SET, None)),
    "append null": lambda ask: change(TOPIC, "plain", ("cleanup.policy", APPEND, None)),
    "set nothing": lambda ask: change(TOPIC, "plain", ("retention.ms", SET, "")),
    "an unknown config": lambda ask: change(TOPIC, "plain", ("no.such.config", SET, "1")),
    "delete an unknown config": lambda ask: change(TOPIC, ask.topic(), ("no.such.config", DELETE, None)),
    "an empty config name": lambda ask: change(TOPIC, "plain", ("", SET, "1")),
    "an illegal value": lambda ask: change(TOPIC, "plain", ("retention.ms", SET, "long")),
    "a config twice": lambda ask: change(TOPIC, "plain", ("retention.ms", SET, "-1"), ("retention.ms", SET, "-1")),
    "good and bad": lambda ask: change(TOPIC, "plain", ("retention.ms", SET, "-1"), ("segment.ms", SET, "long")),
    "validated": lambda ask: change(TOPIC, "plain", ("retention.ms", SET, "5"), validate_only=True),
    "a bad value, validated": lambda ask: change(TOPIC, "plain", ("retention.ms", SET, "long"), validate_only=True),
    "an unknown topic": lambda ask: change(TOPIC, "unknown", ("retention.ms", SET, "-1")),
    "an illegal topic": lambda ask: change(TOPIC, "no/name", ("retention.ms", SET, "-1")),
    "an empty topic": lambda ask: change(TOPIC, "", ("retention.ms", SET, "-1")),
    "a topic twice": lambda ask: {
        "resources": change(TOPIC, "plain", ("retention.ms", SET, "-1"))["resources"] * 2,
        "validate_only": True,
    },
    "an unknown broker": lambda ask: change(BROKER, "77", ("log.cleaner.threads", SET, "1")),
    "a broker of letters": lambda ask: change(BROKER, "one", ("log.cleaner.threads", SET, "1")),
    "a fixed config of a broker": lambda ask: change(BROKER, "1", ("log.dirs", SET, "/tmp"), validate_only=True),
    "an unknown config of a broker": lambda ask: change(BROKER, "1", ("no.such.config", SET, "1"), validate_only=True),
    "a config of all brokers": lambda ask: change(BROKER, "", ("log.cleaner.threads", SET, "1"), validate_only=True),
    "an illegal value of a broker": lambda ask: change(
        BROKER, "1", ("log.cleaner.threads", SET, "many"), validate_only=True
    ),
    "an unknown logger": lambda ask: change(BROKER_LOGGER, "77", ("x", SET, "INFO")),
    "type 0": lambda ask: change(0, "x", ("a", SET, "b")),
    "type 77": lambda ask: change(77, "x", ("a", SET, "b")),
}


def resources(*kinds: int) -> Fields:
    return {"resource_types": kinds}


LIST_CONFIG_RESOURCES = {
    "of client metrics": lambda ask: resources(CLIENT_METRICS),
    "of groups": since(1, lambda ask: resources(GROUP)),
    "of brokers": since(1, lambda ask: resources(BROKER)),
    "of loggers": since(1, lambda ask: resources(BROKER_LOGGER)),
    "of type 0": since(1, lambda ask: resources(0)),
    "of type 77": since(1, lambda ask: resources(77)),
    "of type -1": since(1, lambda ask: resources(-1)),
    "of known and unknown types": since(1, lambda ask: resources(BROKER, 77)),
    "of a type twice": since(1, lambda ask: resources(BROKER, BROKER)),
}


def describe_partitions(*topics: str, **changes: Any) -> Fields:
    return {"topics": [{"name": name} for name in topics], "response_partition_limit": 2_000, "cursor": None, **changes}


DESCRIBE_TOPIC_PARTITIONS = {
    "a topic": lambda ask: describe_partitions("plain"),
    "two topics": lambda ask: describe_partitions("plain", "empty"),
    "a topic twice": lambda ask: describe_partitions("plain", "plain"),
    "an unknown topic": lambda ask: describe_partitions("unknown"),
    "an illegal topic": lambda ask: describe_partitions("no/name"),
    "an empty name": lambda ask: describe_partitions(""),
    "known and unknown": lambda ask: describe_partitions("plain", "unknown"),
    "a page": lambda ask: describe_partitions("plain", response_partition_limit=1),
    "a page of two topics": lambda ask: describe_partitions("empty", "plain", response_partition_limit=2),
    "an empty page": lambda ask: describe_partitions("plain", response_partition_limit=0),
    "a negative page": lambda ask: describe_partitions("plain", response_partition_limit=-1),
    "from a cursor": lambda ask: describe_partitions("plain", cursor={"topic_name": "plain", "partition_index": 1}),
    "from a cursor beyond the end": lambda ask: describe_partitions(
        "plain", cursor={"topic_name": "plain", "partition_index": 9}
    ),
    "from a negative cursor": lambda ask: describe_partitions(
        "plain", cursor={"topic_name": "plain", "partition_index": -1}
    ),
    "from a cursor of another topic": lambda ask: describe_partitions(
        "empty", "plain", cursor={"topic_name": "plain", "partition_index": 0}
    ),
    "from a cursor of an unknown topic": lambda ask: describe_partitions(
        "plain", cursor={"topic_name": "unknown", "partition_index": 0}
    ),
}

CASES: Cases = {
    ApiKey.METADATA: METADATA,
    ApiKey.CREATE_TOPICS: CREATE_TOPICS,
    ApiKey.DELETE_TOPICS: DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS: CREATE_PARTITIONS,
    ApiKey.DESCRIBE_CONFIGS: DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS: ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: INCREMENTAL_ALTER_CONFIGS,
    ApiKey.LIST_CONFIG_RESOURCES: LIST_CONFIG_RESOURCES,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: DESCRIBE_TOPIC_PARTITIONS,
}
