"""Elections and reassignments."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class ElectionType(enum.IntEnum):
    """The kind of election, with Kafka's numbers."""

    PREFERRED = 0
    """Elects the first replica, if it is in sync."""
    UNCLEAN = 1
    """Elects any live replica for a partition without a leader, even if acknowledged records are lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReassignment:
    """A reassignment that is in progress.

    It is complete when all added replicas are in sync. If it removes more replicas than it adds, all replicas that stay
    must be in sync."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    isr: tuple[int, ...]
