"""Messages that are lost, late, or arrive twice: what a client's retries and a network's queues do to requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raftsim.world import MS, World

from txnsim.options import Options


class Network:
    """A message is a call of its receiver."""

    def __init__(self, world: World, options: Options) -> None:
        self._world = world
        self._options = options
        self.is_faulty = True

    def send(self, deliver: Callable[..., None], *args: Any) -> None:
        """Delivers later, never, or twice."""
        options, rng = self._options, self._world.rng
        if self.is_faulty and rng.random() < options.loss_probability:
            return
        self._world.after(self._delay_us(), self._arrive, deliver, args)
        if self.is_faulty and rng.random() < options.duplicate_probability:
            self._world.after(self._delay_us() * rng.randint(1, 200), self._arrive, deliver, args)

    def _arrive(self, deliver: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._world.event_count += 1
        deliver(*args)

    def _delay_us(self) -> int:
        options, rng = self._options, self._world.rng
        delay_us = int(rng.expovariate(1 / options.delay_mean_us)) + 1
        if self.is_faulty and rng.random() < options.slow_message_probability:
            delay_us *= options.slow_message_factor
        return min(delay_us, 5_000 * MS)
