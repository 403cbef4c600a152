"""A request with leader epochs that this broker does not know yet, because the client learned of an election first.

The previous leader or another broker's metadata sent the client here, so this broker will soon get the metadata that
make it the leader. After a refusal, the client would retry after a back-off, as in Kafka. Pure.
"""

from __future__ import annotations

from collections.abc import Callable


class DelayedLeaderEpoch:
    """Calls `on_done` once: when `is_behind` returns False, or the time is over."""

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
