"""The servers of a cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDescription:
    """A controller, broker or coordinator."""

    node_id: int
    host: str
    port: int
    rack: str
    fenced: bool
    in_controlled_shutdown: bool = False
    """True while the broker shuts down and hands its partition leaders to other brokers."""
    kafka_host: str = ""
    kafka_port: int = 0
    """The host and port at which Kafka clients reach the broker. Port 0 means that the server has no Kafka listener."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    cluster_id: str
    controller_id: int
    """The active controller, or -1."""
    controllers: tuple[ServerDescription, ...]
    brokers: tuple[ServerDescription, ...]
    """Every registered broker, including fenced ones."""
    coordinators: tuple[ServerDescription, ...]
    metadata_end_index: int
