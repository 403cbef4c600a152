"""A request that names leader epochs which this broker has not heard of yet: the client knew of an election first.

The client was sent here by the leader before, or by another broker's metadata, and this broker is about to hear that it
leads. After a refusal the client would have to guess when to ask again, as Kafka's does after its back-off. Pure.
"""

from __future__ import annotations

from collections.abc import Callable


class DelayedNews:
    """Calls `on_done` once, when this broker `is_behind` no longer, or the time is up."""

    __slots__ = ("_is_behind", "_on_done")

    def __init__(self, is_behind: Callable[[], bool], on_done: Callable[[], None]) -> None:
        self._is_behind = is_behind
        self._on_done = on_done

    def try_complete(self) -> bool:
        if self._is_behind():
            return False
        self._on_done()
        return True

    def on_expiration(self) -> None:
        self._on_done()
