"""Links between nodes: each message may be late, lost, or there twice, and overtakes others by being sooner."""

from __future__ import annotations

from collections.abc import Callable

from klamm_controller.raft.messages import Message
from tests.sim.kit.world import World
from tests.sim.raftsim.options import Options


class Network:
    """A network that delivers by node id, to the replica that has this id now."""

    def __init__(self, world: World, options: Options, deliver: Callable[[Message], None]) -> None:
        self._world = world
        self._options = options
        self._deliver = deliver
        self._is_faulty = True
        self._cut: dict[tuple[int, int], int] = {}
        """Directed links that are cut, and by how many partitions."""

    def send(self, message: Message) -> None:
        """Sends the message. It may be lost, delayed or duplicated."""
        if self._cut and (message.sender.node_id, message.receiver.node_id) in self._cut:
            return
        if not self._is_faulty:
            self._world.after(500, self._deliver, message)
            return
        options, random = self._options, self._world.rng.random
        if options.loss_probability and random() < options.loss_probability:
            return
        self._world.after(self._delay_us(), self._deliver, message)
        if options.duplicate_probability and random() < options.duplicate_probability:
            self._world.after(self._delay_us(), self._deliver, message)

    def cut(self, links: list[tuple[int, int]], duration_us: int) -> None:
        """Cuts directed links for a while."""
        for link in links:
            self._cut[link] = self._cut.get(link, 0) + 1
        self._world.after(duration_us, self._mend, links)

    def heal(self) -> None:
        """No faults any more."""
        self._is_faulty = False
        self._cut.clear()

    def _mend(self, links: list[tuple[int, int]]) -> None:
        for link in links:
            count = self._cut.pop(link, 0)
            if count > 1:
                self._cut[link] = count - 1

    def _delay_us(self) -> int:
        options, random = self._options, self._world.rng.random
        delay_us = int(options.delay_mean_us * (0.3 + 1.4 * random()))
        if options.slow_link_probability and random() < options.slow_link_probability:
            delay_us *= options.slow_link_factor
        return delay_us
