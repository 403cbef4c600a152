"""Tests the check of servers' properties files."""

from __future__ import annotations

import pytest

from klamm_cli.doctor.config_files import check_config
from klamm_cli.doctor.finding import Level
from tests.support.kafka_stock_files import STOCK_FILES

BROKER = {
    "node.id": "4",
    "listeners": "GRPC://h:9094,KAFKA://h:9092",
    "controller.quorum.bootstrap.servers": "h:9093",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "log.dirs": "/data",
}


def check(**changes):
    properties = {**BROKER, **{name.replace("_", "."): text for name, text in changes.items()}}
    return check_config("f", {name: text for name, text in properties.items() if text is not None})


def texts(checked, level):
    return [finding.text for finding in checked.findings if finding.level is level]


def test_a_valid_config_file_has_no_problem():
    checked = check()
    assert [(finding.level, finding.text) for finding in checked.findings] == [(Level.OK, "f: 6 settings of a broker")]
    assert checked.config.node_id == 4


@pytest.mark.parametrize(
    ("properties", "service"),
    [
        ({"node.id": "1", "metadata.log.dir": "/m"}, "controller"),
        ({"node.id": "1", "controller.quorum.bootstrap.servers": "h:1", "group.max.size": "9"}, "coordinator"),
    ],
)
def test_the_service_of_a_config_file_is_recognized_by_its_settings(properties, service):
    assert texts(check_config("f", properties), Level.OK) == [f"f: {len(properties)} settings of a {service}"]


def test_an_unknown_name_is_a_problem_with_the_nearest_one():
    (found,) = [finding for finding in check(min_insnc_replicas="2").findings if finding.level is Level.PROBLEM]
    assert found.text == "f: a broker has no setting min.insnc.replicas, and does not start with it"
    assert found.advice == "write min.insync.replicas"
    assert check(zzzzzz="1").findings[0].advice == "remove it"


def test_every_invalid_value_of_a_config_file_is_a_problem():
    found = texts(check(num_partitions="many", log_retention_ms="-9"), Level.PROBLEM)
    assert ["num.partitions" in text or "log.retention.ms" in text for text in found] == [True, True]


def test_fields_that_contradict_each_other_are_a_problem():
    checked = check(queued_max_request_bytes="1000000")
    assert checked.config is None
    assert "queued.max.request.bytes" in texts(checked, Level.PROBLEM)[0]


def test_settings_that_lose_or_refuse_records_are_reported():
    (text,) = texts(check(min_insync_replicas="4"), Level.PROBLEM)
    assert "min.insync.replicas=4, default.replication.factor=3" in text
    assert "unclean" in texts(check(unclean_leader_election_enable="true"), Level.WARNING)[0]


def test_configs_of_kafka_without_effect_are_a_warning_for_each_reason():
    checked = check(num_io_threads="8", num_network_threads="3", offsets_retention_minutes="5")
    assert texts(checked, Level.WARNING) == [
        "f: no effect on a broker, because a server of Klamm handles all requests in one event loop: num.io.threads,"
        " num.network.threads",
        "f: no effect on a broker, because the coordinators read them: offsets.retention.minutes",
    ]
    assert checked.config is not None
    assert "num.io.threads: 'many'" in texts(check(num_io_threads="many"), Level.PROBLEM)[0]


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("zookeeper.connect", "write controller.quorum.bootstrap.servers, because Klamm has no ZooKeeper"),
        ("zookeeper.connection.timeout.ms", "remove it, because Klamm has no ZooKeeper"),
        ("host.name", "write listeners, because host.name is a name that Kafka's servers no longer have"),
        ("log.clean.thread", "remove it"),
    ],
)
def test_a_name_of_old_versions_of_kafka_is_a_problem_with_the_right_one(name, advice):
    (found,) = [finding for finding in check(**{name: "1"}).findings if finding.level is Level.PROBLEM]
    assert (found.text, found.advice) == (f"f: a broker has no setting {name}, and does not start with it", advice)


@pytest.mark.parametrize(
    ("file", "service"),
    [("server.properties", "broker"), ("broker.properties", "broker"), ("controller.properties", "controller")],
)
def test_a_file_that_kafka_comes_with_has_no_problem(file, service):
    checked = check_config(file, STOCK_FILES[file])
    assert texts(checked, Level.PROBLEM) == []
    assert any(f"no effect on a {service}, because" in text for text in texts(checked, Level.WARNING))
    assert type(checked.config).__name__.lower() == f"{service}config"


def test_an_advertised_loopback_address_is_a_warning():
    checked = check(listeners="GRPC://0.0.0.0:9094", advertised_listeners="GRPC://localhost:9094")
    (text,) = texts(checked, Level.WARNING)
    assert "localhost:9094, their own loopback" in text
    assert not texts(check(listeners="GRPC://127.0.0.1:9094"), Level.WARNING)


def test_several_mistakes_in_a_config_file_are_all_reported():
    """The file has an unknown name, an invalid value, a missing setting, and settings that refuse records."""
    checked = check(
        min_insnc_replicas="2",
        num_partitions="many",
        node_id=None,
        min_insync_replicas="4",
    )
    found = texts(checked, Level.PROBLEM)
    assert ["no setting min.insnc.replicas" in found[0], "num.partitions" in found[1]] == [True, True]
    assert "node.id is not set" in found[2]
    assert "min.insync.replicas=4, default.replication.factor=3" in found[3]
    assert not texts(checked, Level.OK)


def test_listeners_are_checked_even_if_another_value_is_invalid():
    checked = check(num_partitions="many", advertised_listeners="GRPC://localhost:9094,KAFKA://h:9092")
    assert "their own loopback" in texts(checked, Level.WARNING)[0]
    assert checked.config is not None
    assert check(listeners="nonsense").config is None
