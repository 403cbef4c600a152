from __future__ import annotations

import pytest

from klamm.errors import ConfigError
from klamm_server.config.member_config import MemberConfig
from klamm_server.config.server_config import load

NEEDED = {"node.id": "1"}


def test_controllers_are_hosts_and_ports() -> None:
    config = load(MemberConfig, {**NEEDED, "controller.quorum.bootstrap.servers": "a:1, [::1]:2"})

    assert config.controllers == [("a", 1), ("[::1]", 2)]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"controller.quorum.bootstrap.servers": ""}, "controller.quorum.bootstrap.servers: the list is empty"),
        ({"controller.quorum.bootstrap.servers": "a"}, "'a' is not valid, expected host:port"),
        (
            {"broker.heartbeat.interval.ms": "501", "broker.session.timeout.ms": "1000"},
            "broker.heartbeat.interval.ms=501: expected at most half of broker.session.timeout.ms=1000",
        ),
        ({"listeners": ""}, "listeners: the list is empty"),
    ],
)
def test_an_invalid_member_config_is_refused_by_name(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(MemberConfig, {**NEEDED, **properties})

    assert message in str(raised.value)
