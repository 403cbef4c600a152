"""Messages that are lost, late, or arrive twice: what a client's retries and a network's queues do to requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.sim.kit.network import Links
from tests.sim.kit.world import MS, World
from tests.sim.txnsim.options import Options


class Network(Links):
    """A message is a call of its receiver."""

    def __init__(self, world: World, options: Options) -> None:
        super().__init__(world, options, delay_max_us=5_000 * MS)
        self._duplicate_probability = options.duplicate_probability

    def send(self, receive: Callable[..., None], *args: Any) -> None:
        """Delivers later, never, or twice."""
        if self.is_lost():
            return
        rng = self._world.rng
        self.deliver(self.delay_us(), None, receive, *args)
        if self.is_faulty and rng.random() < self._duplicate_probability:
            self.deliver(self.delay_us() * rng.randint(1, 200), None, receive, *args)
