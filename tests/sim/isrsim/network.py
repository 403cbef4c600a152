"""Links between nodes: delay, loss, and cuts that may be one-way. Nothing arrives twice: gRPC sees to that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raftsim.world import MS, World

from isrsim.options import Options

CONTROLLER = 0
"""Its name among the nodes; brokers count from 1."""


class Network:
    """Messages are calls of the receiver's methods."""

    def __init__(self, world: World, options: Options) -> None:
        self._world = world
        self._options = options
        self.cut: set[tuple[int, int]] = set()
        """(sender, receiver) pairs that hear nothing."""
        self.is_faulty = True

    def send(self, sender: int, receiver: int, deliver: Callable[..., None], *args: Any, extra_us: int = 0) -> None:
        """Delivers later, or never."""
        if (sender, receiver) in self.cut or (self.is_faulty and self._is_lost()):
            return
        self._world.after(self._delay_us() + extra_us, self._arrive, sender, receiver, deliver, args)

    def _arrive(self, sender: int, receiver: int, deliver: Callable[..., None], args: tuple[Any, ...]) -> None:
        if (sender, receiver) not in self.cut:
            self._world.event_count += 1
            deliver(*args)

    def _is_lost(self) -> bool:
        return self._world.rng.random() < self._options.loss_probability

    def _delay_us(self) -> int:
        options, rng = self._options, self._world.rng
        delay_us = int(rng.expovariate(1 / options.delay_mean_us)) + 1
        if self.is_faulty and rng.random() < options.slow_message_probability:
            delay_us *= options.slow_message_factor
        return min(delay_us, 10_000 * MS)
