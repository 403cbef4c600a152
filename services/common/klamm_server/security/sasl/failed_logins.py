"""Delays the answers to failed logins, so that guessing takes time (Kafka's KIP-306, and more).

Each failure of the same user from the same address doubles the delay, up to 10 s. After 10 minutes without a failure,
the delay is forgotten. No user is locked out, because an attacker could use that against the user. The number of
delayed answers to one address is bounded. Pure.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Final, NamedTuple

DELAY_MAX_MS: Final = 10_000
FORGOTTEN_AFTER_MS: Final = 600_000
KEPT_MAX: Final = 10_000
"""The maximum number of users at addresses. Beyond it, the one with the oldest failure is dropped."""
WAITING_MAX: Final = 50
"""The maximum number of delayed answers to one address."""
_DOUBLINGS_MAX: Final = 32


class _Failures(NamedTuple):
    times: int
    last_ms: int


class FailedLogins:
    """The failed logins at one server. Times are of one clock that never goes back."""

    def __init__(self) -> None:
        self._failures: dict[bytes, _Failures] = {}
        self._waiting: Counter[str] = Counter()

    def __len__(self) -> int:
        """Returns the number of users at addresses."""
        return len(self._failures)

    def failed(self, user: str, address: str, first_ms: int, now_ms: int) -> int:
        """Counts a failure. Returns the delay of its answer; `first_ms` is the delay after the first failure."""
        key = _key(user, address)
        before = self._failures.pop(key, None)
        times = before.times + 1 if before is not None and now_ms - before.last_ms < FORGOTTEN_AFTER_MS else 1
        self._failures[key] = _Failures(times, now_ms)
        if len(self._failures) > KEPT_MAX:
            del self._failures[next(iter(self._failures))]
        return min(DELAY_MAX_MS, first_ms << min(times - 1, _DOUBLINGS_MAX))

    def succeeded(self, user: str, address: str) -> None:
        """Drops the failures of a user who has logged in."""
        self._failures.pop(_key(user, address), None)

    def begin_wait(self, address: str) -> bool:
        """Returns whether one more answer to that address may wait. If so, the caller calls `end_wait` afterwards."""
        if self._waiting[address] >= WAITING_MAX:
            return False
        self._waiting[address] += 1
        return True

    def end_wait(self, address: str) -> None:
        """Notes that an answer waits no longer."""
        self._waiting[address] -= 1
        if not self._waiting[address]:
            del self._waiting[address]


def _key(user: str, address: str) -> bytes:
    """Names are the client's word, and may be long."""
    return hashlib.blake2b(f"{address}\0{user}".encode(errors="surrogatepass"), digest_size=16).digest()
