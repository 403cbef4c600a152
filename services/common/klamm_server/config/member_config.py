"""The settings that brokers and coordinators share, because both register with a controller."""

from __future__ import annotations

from dataclasses import dataclass

from klamm.errors import ConfigError
from klamm.setting import boolean, integer, text_list
from klamm_server.config.server_config import ServiceConfig, parse_server

_CONTROLLERS = "controller.quorum.bootstrap.servers"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig(ServiceConfig):
    """Settings of `klamm_server.links.registration` and `klamm_server.links.metadata_link`."""

    controller_quorum_bootstrap_servers: tuple[str, ...] = text_list(
        ("localhost:9093",), doc="The controllers that a server contacts first, as host:port."
    )
    broker_heartbeat_interval_ms: int = integer(
        2_000, at_least=1, doc="How often a server sends a heartbeat to the controller."
    )
    broker_session_timeout_ms: int = integer(
        9_000, at_least=1, doc="The controller fences a server that sends no heartbeat for this long."
    )
    initial_broker_registration_timeout_ms: int = integer(
        60_000, at_least=1, doc="A server exits if it cannot register within this time after its start."
    )
    controlled_shutdown_enable: bool = boolean(
        True, doc="Whether a broker transfers its leaderships to other brokers before it stops."
    )

    def validate(self) -> None:
        # super() fails here: @dataclass(slots=True) creates a new class, and __class__ still names the old one.
        ServiceConfig.validate(self)
        if not self.controllers:
            raise ConfigError(f"{_CONTROLLERS}: the list is empty, expected host:port")
        if self.broker_heartbeat_interval_ms * 2 > self.broker_session_timeout_ms:
            raise ConfigError(
                f"broker.heartbeat.interval.ms={self.broker_heartbeat_interval_ms}: expected at most half of"
                f" broker.session.timeout.ms={self.broker_session_timeout_ms}, because otherwise one late heartbeat"
                " fences"
                " the server"
            )

    @property
    def controllers(self) -> list[tuple[str, int]]:
        """`controller.quorum.bootstrap.servers` as (host, port). Raises ConfigError if an entry is not host:port."""
        return [parse_server(_CONTROLLERS, server) for server in self.controller_quorum_bootstrap_servers]
