"""Links between nodes: delay, loss, and cuts that may be one-way. Nothing arrives twice: gRPC sees to that.

Single calls overtake one another. In a stream (`Channel`) what is sent later arrives later, and when something is lost,
so is everything after it.
"""

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
        if not self.is_lost(sender, receiver):
            self._world.after(self.delay_us() + extra_us, self._arrive, sender, receiver, deliver, args)

    def channel(self, sender: int, receiver: int) -> Channel:
        """One direction of a new stream."""
        return Channel(self, self._world, sender, receiver)

    def _arrive(self, sender: int, receiver: int, deliver: Callable[..., None], args: tuple[Any, ...]) -> None:
        if (sender, receiver) not in self.cut:
            self._world.event_count += 1
            deliver(*args)

    def is_lost(self, sender: int, receiver: int) -> bool:
        """Whether a message that is sent now goes nowhere."""
        if (sender, receiver) in self.cut:
            return True
        return self.is_faulty and self._world.rng.random() < self._options.loss_probability

    def delay_us(self) -> int:
        """Of a message that is sent now."""
        options, rng = self._options, self._world.rng
        delay_us = int(rng.expovariate(1 / options.delay_mean_us)) + 1
        if self.is_faulty and rng.random() < options.slow_message_probability:
            delay_us *= options.slow_message_factor
        return min(delay_us, 10_000 * MS)


class Channel:
    """See the module."""

    def __init__(self, network: Network, world: World, sender: int, receiver: int) -> None:
        self._network = network
        self._world = world
        self._sender, self._receiver = sender, receiver
        self._last_us = 0
        self._is_broken = False

    def send(self, deliver: Callable[..., None], *args: Any) -> None:
        """Delivers after everything that was sent before, or never."""
        self._is_broken = self._is_broken or self._network.is_lost(self._sender, self._receiver)
        if not self._is_broken:
            self._last_us = max(self._last_us, self._world.now_us + self._network.delay_us())
            self._world.after(self._last_us - self._world.now_us, self._arrive, deliver, args)

    def _arrive(self, deliver: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._is_broken = self._is_broken or (self._sender, self._receiver) in self._network.cut
        if not self._is_broken:
            self._world.event_count += 1
            deliver(*args)
