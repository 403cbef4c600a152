"""Passwords that were right a moment ago: a fleet that connects again by PLAIN would cost seconds of CPU.

Kept is an HMAC of password and credential under a key of this process, for 10 minutes: a credential that changes takes
its password along.
"""

from __future__ import annotations

import hmac
from typing import Final

from klamm.secret import Secret
from klamm_server.security.sasl.credential_store import Found

KEPT_MS: Final = 600_000
KEPT_MAX: Final = 10_000
"""The maximum number of passwords. Beyond it, the oldest is dropped."""


class KnownPasswords:
    """`key` is 32 random bytes. Times are of one clock that never goes back."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._until_ms: dict[bytes, int] = {}

    def __len__(self) -> int:
        """The number of passwords that are kept."""
        return len(self._until_ms)

    def is_known(self, found: Found, password: Secret, now_ms: int) -> bool:
        """Returns whether that password was right recently."""
        return now_ms < self._until_ms.get(self._digest(found, password), now_ms)

    def remember(self, found: Found, password: Secret, now_ms: int) -> None:
        """Remembers that the password was right."""
        digest = self._digest(found, password)
        self._until_ms.pop(digest, None)
        self._until_ms[digest] = now_ms + KEPT_MS
        if len(self._until_ms) > KEPT_MAX:
            del self._until_ms[next(iter(self._until_ms))]

    def _digest(self, found: Found, password: Secret) -> bytes:
        # The key comes first and has one length for each mechanism: nothing else reads the same.
        credential = found.credential
        return hmac.digest(self._key, credential.stored_key + password.reveal().encode(), "sha256")
