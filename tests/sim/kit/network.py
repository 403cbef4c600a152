"""Links between nodes: delay, loss, and cuts that may be one-way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tests.sim.kit.world import World

Link = tuple[int, int]
"""Sender and receiver."""


class LinkOptions(Protocol):
    """The options of a seed that links go by."""

    @property
    def delay_mean_us(self) -> int: ...

    @property
    def slow_message_probability(self) -> float: ...

    @property
    def slow_message_factor(self) -> int: ...

    @property
    def loss_probability(self) -> float: ...


class Links:
    """A message is a call of its receiver's method. Messages overtake one another by being sooner."""

    def __init__(self, world: World, options: LinkOptions, *, delay_max_us: int) -> None:
        self._world = world
        self._options = options
        self._delay_max_us = delay_max_us
        self.is_faulty = True
        self.cut: set[Link] = set()
        """The links over which no message arrives."""

    def is_lost(self, link: Link | None = None) -> bool:
        """True if a message that is sent now is lost."""
        if link in self.cut:
            return True
        return self.is_faulty and self._world.rng.random() < self._options.loss_probability

    def delay_us(self) -> int:
        """The delay of a message that is sent now."""
        options, rng = self._options, self._world.rng
        delay_us = int(rng.expovariate(1 / options.delay_mean_us)) + 1
        if self.is_faulty and rng.random() < options.slow_message_probability:
            delay_us *= options.slow_message_factor
        return min(delay_us, self._delay_max_us)

    def deliver(self, delay_us: int, link: Link | None, receive: Callable[..., None], *args: Any) -> None:
        """The message arrives after that time, unless its link is cut then."""
        self._world.after(delay_us, self._arrive, link, receive, args)

    def _arrive(self, link: Link | None, receive: Callable[..., None], args: tuple[Any, ...]) -> None:
        if link not in self.cut:
            self._world.event_count += 1
            receive(*args)
