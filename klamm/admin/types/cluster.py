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
    """Whether the server is a broker that is about to stop, and hands its leaders over."""
    kafka_host: str = ""
    kafka_port: int = 0
    """Where Kafka clients reach the server, if it is a broker; port 0: nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    cluster_id: str
    controller_id: int
    """The active controller, or -1."""
    controllers: tuple[ServerDescription, ...]
    brokers: tuple[ServerDescription, ...]
    """Every registered broker, also fenced ones."""
    coordinators: tuple[ServerDescription, ...]
    metadata_end_index: int
