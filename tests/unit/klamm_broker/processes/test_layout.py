"""Tests the settings of the broker processes of one host."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from klamm.errors import ConfigError
from klamm_broker.processes.layout import Place, check_ports, check_processes, found_processes, process_settings
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.server_config import load

LISTENERS = "GRPC://localhost:9094,KAFKA://0.0.0.0:9092"
HOST = {
    "node.id": "100",
    "listeners": LISTENERS,
    "advertised.listeners": "GRPC://host7:9094,KAFKA://host7.example.com:9092",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "log.dirs": "/d1/klamm,/d2/klamm",
    "metrics.port": "9405",
}


def loaded(**settings: str) -> BrokerConfig:
    return load(BrokerConfig, {**HOST, **{name.replace("_", "."): text for name, text in settings.items()}})


def of(number: int, config: BrokerConfig, total: int = 4) -> dict[str, str]:
    return process_settings(config, Place(number, total), host="host7", memory_bytes=4_000)


def test_ids_ports_and_directories_follow_from_those_of_the_first_process() -> None:
    assert of(3, loaded()) == {
        "node.id": "102",
        "listeners": "GRPC://localhost:9114,KAFKA://0.0.0.0:9112",
        "advertised.listeners": "GRPC://host7:9114,KAFKA://host7.example.com:9112",
        "metrics.port": "9425",
        "log.dirs": "/d1/klamm-3,/d2/klamm-3",
        "broker.rack": "host7",
        "fetch.session.max.bytes": "1000",
    }


def test_the_first_process_has_what_a_broker_alone_would_have() -> None:
    first = of(1, loaded())
    assert {name: first[name] for name in HOST if name in first} == {
        name: text for name, text in HOST.items() if name in first
    }


@pytest.mark.parametrize(
    ("rack", "path"), [("", "host7"), ("dc1", "dc1/host7"), ("dc1/other", "dc1/other"), ("a/b/c", "a/b/c")]
)
def test_all_processes_of_a_host_are_one_failure_domain(rack: str, path: str) -> None:
    config = loaded(broker_rack=rack)
    assert {of(number, config)["broker.rack"] for number in range(1, 5)} == {path}


def test_free_ports_and_metrics_that_are_off_stay_so() -> None:
    settings = of(2, loaded(listeners="GRPC://localhost:9094,KAFKA://localhost:0", metrics_port="0"))
    assert settings["listeners"] == "GRPC://localhost:9104,KAFKA://localhost:0"
    assert "metrics.port" not in settings


def test_a_port_beyond_the_last_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"listeners: process 3 would have the port 65540, expected at most 65515"):
        of(3, loaded(listeners="GRPC://localhost:65520", advertised_listeners="GRPC://localhost:65520"))


def test_processes_with_the_same_port_are_refused() -> None:
    config = loaded(listeners="GRPC://localhost:9094,KAFKA://localhost:9104")
    configs = [load(BrokerConfig, {**HOST, **of(number, config)}) for number in (1, 2)]
    message = "--processes 2: KAFKA of process 1 and GRPC of process 2 have the same port 9104, expected ports"
    with pytest.raises(ConfigError, match=re.escape(message)):
        check_ports(configs)
    check_ports([load(BrokerConfig, {**HOST, **of(number, loaded())}) for number in range(1, 40)])


def test_a_process_whose_directory_has_records_is_not_left_out(tmp_path: Path) -> None:
    config = loaded(log_dirs=str(tmp_path / "data"))
    for name in ("data", "data-2", "data-3", "data-old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").touch()
    (tmp_path / "data-4").mkdir()
    assert found_processes(config.data_dirs) == 3
    check_processes(config, 3)
    with pytest.raises(ConfigError, match=r"--processes 2: .*/data-3 has the partitions of broker 102, expected at"):
        check_processes(config, 2)


def test_a_mount_point_is_no_place_for_the_directories_of_several_processes() -> None:
    config = loaded(log_dirs="/proc")
    check_processes(config, 1)
    with pytest.raises(ConfigError, match=r"log\.dirs: /proc is a mount point, so /proc-2 would be on another disk"):
        check_processes(config, 2)


def test_a_free_port_between_servers_is_refused() -> None:
    with pytest.raises(ConfigError, match="listeners: GRPC://localhost:0 is not valid with --processes"):
        check_processes(loaded(listeners="GRPC://localhost:0", advertised_listeners="GRPC://host7:9094"), 2)
