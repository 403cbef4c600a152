"""Decides when the keys of tokens are read again (KIP-768).

They are read at regular times, and sooner after a failure. They are also read if a token names an unknown key, but at
most once in 10 s for all such tokens. Pure: the code that reads the keys asks here.
"""

from __future__ import annotations

from typing import Final

UNKNOWN_KEY_MS: Final = 10_000
"""The minimum time between reads that unknown keys cause."""


class KeyRefresh:
    """Decides when to read. Times are of one clock that never goes back. The first read is due at once."""

    def __init__(self, *, refresh_ms: int, retry_ms: int, retry_max_ms: int) -> None:
        self._refresh_ms = refresh_ms
        self._retry_ms = retry_ms
        self._retry_max_ms = retry_max_ms
        self._next_retry_ms = retry_ms
        self._asked_ms: int | None = None
        self.due_ms: int | None = None
        """The time of the next read, or None if it is due at once."""

    def loaded(self, now_ms: int) -> None:
        """Notes that the keys were read."""
        self.due_ms = now_ms + self._refresh_ms
        self._next_retry_ms = self._retry_ms

    def failed(self, now_ms: int) -> None:
        """Notes that the keys could not be read."""
        self.due_ms = now_ms + min(self._next_retry_ms, self._retry_max_ms)
        self._next_retry_ms = min(2 * self._next_retry_ms, self._retry_max_ms)

    def on_unknown_key(self, now_ms: int) -> bool:
        """Returns whether to read the keys because of an unknown key."""
        if self._asked_ms is not None and now_ms - self._asked_ms < UNKNOWN_KEY_MS:
            return False
        self._asked_ms = now_ms
        return True
