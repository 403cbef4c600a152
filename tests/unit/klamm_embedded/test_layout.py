"""Which processes a cluster on one machine has."""

from __future__ import annotations

import pytest

from klamm.errors import ConfigError
from klamm_broker.config import BrokerConfig
from klamm_controller.config import ControllerConfig
from klamm_embedded.layout import ClusterSize, lay_out
from klamm_server.config import load

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def laid_out(tmp_path, size, settings=None):
    ports = range(9094, 9094 + size.total)
    return lay_out(
        size, data_dir=tmp_path, host="localhost", ports=ports, cluster_id=CLUSTER_ID, settings=settings or {}
    )


def test_every_process_has_a_name_and_an_address_of_its_own(tmp_path):
    specs = laid_out(tmp_path, ClusterSize(controllers=3, brokers=2, coordinators=1))
    assert [(spec.name, spec.address) for spec in specs] == [
        ("controller 1", "localhost:9096"),
        ("controller 2", "localhost:9097"),
        ("controller 3", "localhost:9098"),
        ("broker 1", "localhost:9094"),
        ("broker 2", "localhost:9095"),
        ("coordinator 1", "localhost:9099"),
    ]


def test_everybody_knows_the_controllers(tmp_path):
    controller, *_, broker, _ = laid_out(tmp_path, ClusterSize(controllers=3))
    voters = load(ControllerConfig, controller.settings).listed_voters()
    assert [(one.key.node_id, one.endpoint) for one in voters] == [
        (1, "localhost:9095"),
        (2, "localhost:9096"),
        (3, "localhost:9097"),
    ]
    assert [port for _, port in load(BrokerConfig, broker.settings).controllers] == [9095, 9096, 9097]


def test_directories_are_apart(tmp_path):
    specs = laid_out(tmp_path, ClusterSize(controllers=3, brokers=3))
    directories = [spec.settings.get("log.dirs") or spec.settings.get("metadata.log.dir") for spec in specs[:-1]]
    assert len(set(directories)) == len(directories)


@pytest.mark.parametrize(("brokers", "factor", "min_isr"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")])
def test_topics_outlive_a_broker_when_there_are_several(tmp_path, brokers, factor, min_isr):
    controller, *_ = laid_out(tmp_path, ClusterSize(controllers=1, brokers=brokers))
    assert controller.settings["default.replication.factor"] == factor
    broker = laid_out(tmp_path, ClusterSize(brokers=brokers))[1]
    assert broker.settings["min.insync.replicas"] == min_isr


def test_every_process_shows_its_metrics_at_a_port_of_its_own(tmp_path):
    size = ClusterSize(controllers=1, brokers=2, coordinators=1)
    specs = laid_out(tmp_path, size, {"metrics.port": "9404"})
    assert {spec.name: spec.settings["metrics.port"] for spec in specs} == {
        "broker 1": "9404",
        "broker 2": "9405",
        "controller 1": "9406",
        "coordinator 1": "9407",
    }
    assert all("metrics.port" not in spec.settings for spec in laid_out(tmp_path, size))
    assert all(spec.settings["metrics.port"] == "0" for spec in laid_out(tmp_path, size, {"metrics.port": "0"}))
    with pytest.raises(ConfigError, match=r"metrics\.port: '65536' is not valid"):
        laid_out(tmp_path, size, {"metrics.port": "65534"})


def test_a_setting_goes_to_the_services_that_know_it_and_wins(tmp_path):
    settings = {"log.segment.bytes": "1048576", "default.replication.factor": "1"}
    controller, broker, coordinator = laid_out(tmp_path, ClusterSize(), settings)
    assert controller.settings["default.replication.factor"] == "1"
    assert broker.settings["log.segment.bytes"] == "1048576"
    assert "log.segment.bytes" not in coordinator.settings


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"log.segment.byte": "1"}, "no service has a setting 'log.segment.byte'; did you mean log.segment.bytes"),
        ({"log.segment.bytes": "many"}, "log.segment.bytes: 'many' is not valid"),
    ],
)
def test_a_setting_that_is_unknown_or_invalid_is_named(tmp_path, settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        laid_out(tmp_path, ClusterSize(brokers=3), settings)


def test_two_controllers_are_no_quorum(tmp_path):
    with pytest.raises(ConfigError, match="expected 1, 3 or 5"):
        laid_out(tmp_path, ClusterSize(controllers=2))
