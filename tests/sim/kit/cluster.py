"""The base of simulated clusters. It ends the faults, and notes events."""

from __future__ import annotations

from collections import deque

from tests.sim.kit.world import MS, World


class SimCluster:
    """The base of the simulations' clusters."""

    def __init__(self, world: World, trace: deque[str] | None) -> None:
        """Makes a cluster. `trace` gets the notes. A bounded trace keeps the last lines."""
        self.world = world
        self.is_faulty = True
        """Faults still come."""
        self._trace = trace

    def note(self, text: str) -> None:
        """Notes a line that helps to explain a violation."""
        if self._trace is not None:
            self._trace.append(f"{self.world.now_us / MS:10.3f} {text}")
