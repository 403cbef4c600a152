"""The means of faults that not every cluster, machine or user has."""

from __future__ import annotations

import enum


class Means(enum.Enum):
    """A means that some faults need. A run prints the value if the means is missing."""

    DISKS = "disks of a known size"
    CABLES = "cables between nodes"
    PORTS = "packets dropped by port"
    ABSENCE = "a process that is killed stays away until it is started"
    COMMAND = "one command that runs all processes"
