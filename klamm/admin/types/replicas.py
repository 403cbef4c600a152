"""Elections and reassignments."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class ElectionType(enum.IntEnum):
    """Kafka's numbers."""

    PREFERRED = 0
    """The first replica, if it is in sync."""
    UNCLEAN = 1
    """Any replica may lead a partition without a leader, even if acknowledged records are lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReassignment:
    """A reassignment that is under way; complete when all replicas that stay are in sync."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    isr: tuple[int, ...]
