"""A run as the decisions that made it: which replica did what when, without the chances that led there.

A decision names everything that chance chose, so decisions can be made again without a clock, a network or a workload
(shrink.py), and any of them can be left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm_controller.raft.effects import LoadSnapshotChunk
from klamm_controller.raft.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A node began, from its disk."""

    now_us: int
    node_id: int
    rng_seed: int
    """The seed of the node's own randomness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """A node handled an event."""

    now_us: int
    node_id: int
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """A disk made its oldest writes durable."""

    now_us: int
    node_id: int
    write_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A disk answered a read of a snapshot."""

    now_us: int
    node_id: int
    load: LoadSnapshotChunk


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed:
    """A node stopped. Its disk kept the oldest of the writes that were not durable."""

    now_us: int
    node_id: int
    kept_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiped:
    """A node lost its disk and got a new one."""

    now_us: int
    node_id: int


Decision = Started | Stepped | Synced | Loaded | Crashed | Wiped
