"""Tests which properties a broker accepts."""

from __future__ import annotations

import pytest

from klamm.errors import ConfigError
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.server_config import load


def test_a_broker_accepts_kafkas_names_and_has_kafkas_defaults() -> None:
    config = load(BrokerConfig, {"node.id": "3", "log.retention.hours": "24", "compression.type": "zstd"})
    assert config.auto_create_topics_enable
    assert config.fetch_max_bytes == 55 * 1024**2
    assert config.controllers == [("localhost", 9093)]
    assert config.originals["log.retention.hours"] == "24"


def test_log_dirs_win_over_log_dir_and_count_once() -> None:
    assert load(BrokerConfig, {"node.id": "1", "log.dir": "/x"}).data_dirs == ("/x",)
    several = load(BrokerConfig, {"node.id": "1", "log.dir": "/x", "log.dirs": "/a,/b,/a"})
    assert several.data_dirs == ("/a", "/b")


@pytest.mark.parametrize(
    ("properties", "story"),
    [
        ({"fetch.max.byte": "1"}, "unknown configuration fetch.max.byte; did you mean fetch.max.bytes"),
        ({"log.dirs": ""}, "log.dirs: the list is empty"),
        ({"log.dirs.lost": "/b"}, "log.dirs.lost: '/b' is not valid, expected a list of directory ids"),
        ({"controller.quorum.bootstrap.servers": "nonsense"}, "expected host:port"),
        ({"broker.heartbeat.interval.ms": "5000"}, "expected at most half of broker.session.timeout.ms=9000"),
        ({"queued.max.request.bytes": "2000"}, "expected at least socket.request.max.bytes"),
        (
            {"log.cleaner.dedupe.buffer.size": "3000000", "log.cleaner.threads": "3"},
            "log.cleaner.dedupe.buffer.size=3000000: expected at least 1048576 for each of log.cleaner.threads=3",
        ),
        ({"replica.fetch.wait.max.ms": "40000"}, "expected at most replica.lag.time.max.ms=30000"),
        ({"replica.selector.class": "Nearest"}, "replica.selector.class: 'Nearest' is not valid, expected one of Rack"),
        ({"max.parked.requests": "0"}, "max.parked.requests: '0' is not valid"),
        ({"log.retention.hours": "soon"}, "log.retention.hours: 'soon' is not valid"),
    ],
)
def test_an_invalid_broker_config_is_refused_in_one_line(properties: dict[str, str], story: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(BrokerConfig, {"node.id": "1", **properties})
    assert story in str(refused.value)
    assert "\n" not in str(refused.value)
