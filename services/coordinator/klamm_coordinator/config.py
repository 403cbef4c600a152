"""The coordinator's configuration, with Kafka's names and defaults. A few bounds exist only in Klamm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from klamm.errors import ConfigError
from klamm.setting import Setting, again, integer, list_of, long
from klamm_coordinator.groups.settings import GroupSettings
from klamm_coordinator.kip848.assignors import ASSIGNORS
from klamm_coordinator.transaction_shard.settings import TransactionSettings
from klamm_server.config.broker_configs import BROKER_CONFIGS
from klamm_server.config.kafka_listeners import Role
from klamm_server.config.member_config import MemberConfig

DEFAULT_PORT = 9095


@dataclass(frozen=True, kw_only=True)
class CoordinatorConfig(GroupSettings, TransactionSettings, MemberConfig):
    """The settings of a coordinator process. `klamm_server.config.server_config.load` builds it from properties."""

    OF_BROKERS: ClassVar[Mapping[str, Setting]] = BROKER_CONFIGS
    ROLE: ClassVar[Role] = Role.COORDINATOR

    listeners: tuple[str, ...] = again(
        MemberConfig,
        "listeners",
        default=(f"GRPC://localhost:{DEFAULT_PORT}",),
        documentation="The addresses where the coordinator listens, as NAME://host:port. An empty host is every"
        " interface.",
    )
    consumer_assignors: tuple[str, ...] = again(
        GroupSettings, "group.consumer.assignors", validator=list_of(*ASSIGNORS)
    )
    group_consumer_min_session_timeout_ms: int = integer(
        45_000, at_least=1, doc="The smallest possible value of group.consumer.session.timeout.ms."
    )
    group_consumer_max_session_timeout_ms: int = integer(
        60_000, at_least=1, doc="The largest possible value of group.consumer.session.timeout.ms."
    )
    group_consumer_min_heartbeat_interval_ms: int = integer(
        5_000, at_least=1, doc="The smallest possible value of group.consumer.heartbeat.interval.ms."
    )
    group_consumer_max_heartbeat_interval_ms: int = integer(
        15_000, at_least=1, doc="The largest possible value of group.consumer.heartbeat.interval.ms."
    )
    offsets_load_buffer_size: int = integer(
        5 * 1024**2,
        at_least=1,
        doc="How many bytes the coordinator reads at once while it loads a partition of __consumer_offsets.",
    )
    transaction_state_log_load_buffer_size: int = integer(
        5 * 1024**2,
        at_least=1,
        doc="How many bytes the coordinator reads at once while it loads a partition of __transaction_state.",
    )
    coordinator_pending_writes_max_bytes: int | None = long(
        None,
        at_least=1,
        doc="The most bytes of writes, of all partitions together, that wait for their append. The coordinator rejects"
        " further writes with COORDINATOR_NOT_AVAILABLE.",
        shown="a sixteenth of the memory that the process may use",
    )
    coordinator_append_max_bytes: int = integer(
        1_000_000,
        at_least=1,
        doc="The most bytes of writes that the coordinator appends as one batch. It must be less than"
        " max.message.bytes of __consumer_offsets.",
    )

    def validate(self) -> None:
        super().validate()
        if self.session_timeout_min_ms > self.session_timeout_max_ms:
            raise ConfigError(
                f"group.min.session.timeout.ms={self.session_timeout_min_ms}: expected at most"
                f" group.max.session.timeout.ms={self.session_timeout_max_ms}"
            )
        _check_within(
            "group.consumer.{}session.timeout.ms",
            self.group_consumer_min_session_timeout_ms,
            self.consumer_session_timeout_ms,
            self.group_consumer_max_session_timeout_ms,
        )
        _check_within(
            "group.consumer.{}heartbeat.interval.ms",
            self.group_consumer_min_heartbeat_interval_ms,
            self.consumer_heartbeat_interval_ms,
            self.group_consumer_max_heartbeat_interval_ms,
        )
        if self.consumer_heartbeat_interval_ms >= self.consumer_session_timeout_ms:
            raise ConfigError(
                f"group.consumer.heartbeat.interval.ms={self.consumer_heartbeat_interval_ms}: expected less than"
                f" group.consumer.session.timeout.ms={self.consumer_session_timeout_ms}"
            )
        if not self.consumer_assignors:
            raise ConfigError(f"group.consumer.assignors is empty, expected some of {', '.join(ASSIGNORS)}")


def _check_within(name: str, least: int, value: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigError(
            f"{name.format('')}={value}: expected {least} ({name.format('min.')}) to {most} ({name.format('max.')})"
        )
