"""Tests which processes a cluster on one machine has."""

from __future__ import annotations

import pytest

from klamm.errors import ConfigError
from klamm_controller.config import ControllerConfig
from klamm_embedded.layout import ClusterSize, Ports, lay_out
from klamm_embedded.secured import SecuredFiles
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.server_config import load

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def laid_out(tmp_path, size, settings=None):
    ports = [Ports(grpc=9094 + number) for number in range(size.total)]
    return lay_out(
        size, data_dir=tmp_path, host="localhost", ports=ports, cluster_id=CLUSTER_ID, settings=settings or {}
    )


def test_every_process_has_its_own_name_and_address(tmp_path):
    specs = laid_out(tmp_path, ClusterSize(controllers=3, brokers=2, coordinators=1))
    assert [(spec.name, spec.address) for spec in specs] == [
        ("controller 1", "localhost:9096"),
        ("controller 2", "localhost:9097"),
        ("controller 3", "localhost:9098"),
        ("broker 1", "localhost:9094"),
        ("broker 2", "localhost:9095"),
        ("coordinator 1", "localhost:9099"),
    ]


def test_every_server_knows_all_controllers(tmp_path):
    controller, *_, broker, _ = laid_out(tmp_path, ClusterSize(controllers=3))
    voters = load(ControllerConfig, controller.settings).listed_voters()
    assert [(voter.key.node_id, voter.endpoint) for voter in voters] == [
        (1, "localhost:9095"),
        (2, "localhost:9096"),
        (3, "localhost:9097"),
    ]
    assert [port for _, port in load(BrokerConfig, broker.settings).controllers] == [9095, 9096, 9097]


def test_every_controller_and_broker_has_its_own_directory(tmp_path):
    specs = laid_out(tmp_path, ClusterSize(controllers=3, brokers=3))
    directories = [spec.settings.get("log.dirs") or spec.settings.get("metadata.log.dir") for spec in specs[:-1]]
    assert len(set(directories)) == len(directories)


@pytest.mark.parametrize(("brokers", "factor", "min_isr"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")])
def test_replication_factor_and_min_isr_follow_the_number_of_brokers(tmp_path, brokers, factor, min_isr):
    controller, *_ = laid_out(tmp_path, ClusterSize(controllers=1, brokers=brokers))
    assert controller.settings["default.replication.factor"] == factor
    broker = laid_out(tmp_path, ClusterSize(brokers=brokers))[1]
    assert broker.settings["min.insync.replicas"] == min_isr


def test_every_process_serves_its_metrics_at_its_own_port(tmp_path):
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


def test_a_setting_goes_to_the_services_that_know_it_and_overrides_the_default(tmp_path):
    settings = {"log.segment.bytes": "1048576", "default.replication.factor": "1"}
    controller, broker, coordinator = laid_out(tmp_path, ClusterSize(), settings)
    assert controller.settings["default.replication.factor"] == "1"
    assert broker.settings["log.segment.bytes"] == "1048576"
    assert "log.segment.bytes" not in coordinator.settings


def test_a_kafka_config_goes_to_the_servers_that_read_it_or_to_the_brokers(tmp_path):
    settings = {"num.io.threads": "16", "offsets.retention.minutes": "5", "auto.leader.rebalance.enable": "false"}
    controller, broker, coordinator = laid_out(tmp_path, ClusterSize(), settings)
    chosen = [[name for name in settings if name in spec.settings] for spec in (controller, broker, coordinator)]
    assert chosen == [["auto.leader.rebalance.enable"], ["num.io.threads"], ["offsets.retention.minutes"]]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"log.segment.byte": "1"}, "unknown setting 'log.segment.byte'; did you mean log.segment.bytes"),
        ({"log.segment.bytes": "many"}, "log.segment.bytes: 'many' is not valid"),
        ({"num.io.threads": "many"}, "num.io.threads: 'many' is not valid"),
    ],
)
def test_a_setting_that_is_unknown_or_invalid_is_named(tmp_path, settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        laid_out(tmp_path, ClusterSize(brokers=3), settings)


def test_a_listener_setting_goes_to_the_servers_that_have_the_listener(tmp_path):
    specs = lay_out(
        ClusterSize(),
        data_dir=tmp_path,
        host="localhost",
        ports=[Ports(grpc=1, kafka=4), Ports(grpc=2), Ports(grpc=3)],
        cluster_id=CLUSTER_ID,
        settings={"listener.name.kafka.max.connections": "9"},
    )
    assert [spec.name for spec in specs if "listener.name.kafka.max.connections" in spec.settings] == ["broker 1"]


def test_the_health_of_servers_with_tls_is_checked_over_tls(tmp_path):
    settings = {
        "listener.security.protocol.map": "GRPC:GRPC_SSL",
        "ssl.keystore.location": "/server.pem",
        "ssl.truststore.location": "/ca.pem",
        "ssl.client.auth": "required",
    }
    assert {spec.tls for spec in laid_out(tmp_path, ClusterSize(brokers=3))} == {None}
    for spec in laid_out(tmp_path, ClusterSize(brokers=3), settings):
        assert spec.tls is not None
        assert spec.tls.ssl_keystore_location == "/server.pem"
        assert spec.servers_address == spec.address


def test_servers_of_a_secured_cluster_reach_each_other_by_a_listener_of_their_own(tmp_path):
    ports = [
        Ports(grpc=9094, kafka=9092, servers=41),
        Ports(grpc=9095, servers=42),
        Ports(grpc=9096, servers=43),
    ]
    specs = lay_out(
        ClusterSize(),
        data_dir=tmp_path,
        host="localhost",
        ports=ports,
        cluster_id=CLUSTER_ID,
        settings=SecuredFiles(tmp_path).settings(),
    )
    controller, broker, coordinator = specs
    listeners = {spec.name: spec.settings["listeners"] for spec in specs}
    assert listeners == {
        "controller 1": "INTERNAL://127.0.0.1:42,GRPC_SASL_SSL://localhost:9095",
        "broker 1": "INTERNAL://127.0.0.1:41,GRPC_SASL_SSL://localhost:9094,SASL_SSL://localhost:9092",
        "coordinator 1": "INTERNAL://127.0.0.1:43,GRPC_SASL_SSL://localhost:9096",
    }
    assert controller.settings["controller.quorum.voters"] == "1@127.0.0.1:42"
    assert broker.settings["controller.quorum.bootstrap.servers"] == "127.0.0.1:42"
    assert (coordinator.address, coordinator.servers_address) == ("localhost:9096", "127.0.0.1:43")
    assert all(spec.tls is not None and spec.tls.ssl_client_auth == "required" for spec in specs)


def test_two_controllers_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="expected 1, 3 or 5"):
        laid_out(tmp_path, ClusterSize(controllers=2))
