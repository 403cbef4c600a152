"""Links between nodes: delay, loss, and cuts that may be one-way. Nothing arrives twice: gRPC sees to that.

Single calls overtake one another. In a stream (`Channel`) what is sent later arrives later, and when something is lost,
so is everything after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.sim.isrsim.options import Options
from tests.sim.kit.network import Link, Links
from tests.sim.kit.world import MS, World

CONTROLLER = 0
"""The controller's number among the nodes. Brokers are numbered from 1."""


class Network(Links):
    """Messages are calls of the receiver's methods."""

    def __init__(self, world: World, options: Options) -> None:
        super().__init__(world, options, delay_max_us=10_000 * MS)

    def send(self, sender: int, receiver: int, receive: Callable[..., None], *args: Any, extra_us: int = 0) -> None:
        """Delivers later, or never."""
        link = (sender, receiver)
        if not self.is_lost(link):
            self.deliver(self.delay_us() + extra_us, link, receive, *args)

    def channel(self, sender: int, receiver: int) -> Channel:
        """Returns one direction of a new stream."""
        return Channel(self, self._world, (sender, receiver))


class Channel:
    """See the module."""

    def __init__(self, network: Network, world: World, link: Link) -> None:
        self._network = network
        self._world = world
        self._link = link
        self._last_us = 0
        self._is_broken = False

    def send(self, deliver: Callable[..., None], *args: Any) -> None:
        """Delivers after everything that was sent before, or never."""
        self._is_broken = self._is_broken or self._network.is_lost(self._link)
        if not self._is_broken:
            self._last_us = max(self._last_us, self._world.now_us + self._network.delay_us())
            self._world.after(self._last_us - self._world.now_us, self._arrive, deliver, args)

    def _arrive(self, deliver: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._is_broken = self._is_broken or self._link in self._network.cut
        if not self._is_broken:
            self._world.event_count += 1
            deliver(*args)
