"""What brokers and coordinators have in common in their configuration: both register with a controller."""

from __future__ import annotations

from dataclasses import dataclass

from klamm.errors import ConfigError
from klamm_server.broker_configs import BROKER_CONFIGS
from klamm_server.config import ServiceConfig, parse_server, setting

_CONTROLLERS = BROKER_CONFIGS["controller.quorum.bootstrap.servers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig(ServiceConfig):
    """Settings of `klamm_server.registration` and `klamm_server.metadata_link`."""

    controller_quorum_bootstrap_servers: tuple[str, ...] = setting(_CONTROLLERS)
    broker_heartbeat_interval_ms: int = setting(BROKER_CONFIGS["broker.heartbeat.interval.ms"])
    broker_session_timeout_ms: int = setting(BROKER_CONFIGS["broker.session.timeout.ms"])
    initial_broker_registration_timeout_ms: int = setting(BROKER_CONFIGS["initial.broker.registration.timeout.ms"])
    controlled_shutdown_enable: bool = setting(BROKER_CONFIGS["controlled.shutdown.enable"])

    def validate(self) -> None:
        # Not super(): a slotted dataclass is not the class that its body closes over.
        ServiceConfig.validate(self)
        if not self.controllers:
            raise ConfigError(f"{_CONTROLLERS.name}: the list is empty, expected host:port")
        if self.broker_heartbeat_interval_ms * 2 > self.broker_session_timeout_ms:
            raise ConfigError(
                f"broker.heartbeat.interval.ms={self.broker_heartbeat_interval_ms}: expected at most half of"
                f" broker.session.timeout.ms={self.broker_session_timeout_ms}, or one late heartbeat fences"
            )

    @property
    def controllers(self) -> list[tuple[str, int]]:
        """`controller.quorum.bootstrap.servers` as (host, port). Raises ConfigError for what is not that."""
        return [parse_server(_CONTROLLERS.name, server) for server in self.controller_quorum_bootstrap_servers]
