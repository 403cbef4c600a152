"""Calls to others: a call is sent again until it is answered, or until its caller has gone on or crashed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.sim.kit.world import MS

if TYPE_CHECKING:
    from tests.sim.txnsim.cluster import Cluster


class Caller:
    """A process that makes one call after another."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.is_alive = True
        self.paused_until_us = 0
        self._step = 0
        """Counts what is waited for: an answer to anything else is ignored."""

    def crash(self) -> None:
        """Ends the process. It sends nothing more, but its earlier messages may still arrive."""
        self.is_alive = False

    def _call(self, send: Callable[[Callable[[Any], None]], None], on_reply: Callable[[Any], None]) -> None:
        step = self._step
        is_answered = False

        def receive(reply: Any) -> None:
            nonlocal is_answered
            if not is_answered and self.is_alive and step == self._step:
                is_answered = True
                self._when_awake(lambda: on_reply(reply) if step == self._step else None)

        def attempt() -> None:
            if self.is_alive and step == self._step and not is_answered:
                send(receive)
                self.cluster.world.after(self.cluster.options.request_timeout_ms * MS, attempt)

        attempt()

    def _when_awake(self, action: Callable[[], None]) -> None:
        if not self.is_alive:
            return
        wait_us = self.paused_until_us - self.cluster.world.now_us
        if wait_us > 0:
            self.cluster.world.after(wait_us, self._when_awake, action)
        else:
            action()

    def _later(self, action: Callable[..., None], *args: Any) -> None:
        step = self._step

        def run() -> None:
            if step == self._step:
                self._when_awake(lambda: action(*args))

        self.cluster.world.after(self.cluster.options.backoff_ms * MS, run)
