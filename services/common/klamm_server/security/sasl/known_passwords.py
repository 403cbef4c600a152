"""Remembers passwords that were recently correct, so that a server need not verify them again. Otherwise, many clients
that reconnect with PLAIN would cost seconds of CPU time.

The server keeps an HMAC of the password and the credential, with a key of this process, for 10 minutes. If the
credential changes, the HMAC no longer matches.
"""

from __future__ import annotations

import hmac
from typing import Final

from klamm.secret import Secret
from klamm_server.security.sasl.credential_store import Found

KEPT_MS: Final = 600_000
KEPT_MAX: Final = 10_000
"""The most passwords that are remembered. When there are more, the oldest is dropped."""


class KnownPasswords:
    """The passwords that were recently correct. `key` has 32 random bytes. All times are from one monotonic clock, in
    milliseconds."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._until_ms: dict[bytes, int] = {}

    def __len__(self) -> int:
        """Returns the number of passwords that are remembered."""
        return len(self._until_ms)

    def is_known(self, found: Found, password: Secret, now_ms: int) -> bool:
        """Returns True if the password was verified for this credential within the last 10 minutes."""
        return now_ms < self._until_ms.get(self._digest(found, password), now_ms)

    def remember(self, found: Found, password: Secret, now_ms: int) -> None:
        """Remembers that the password is correct for this credential."""
        digest = self._digest(found, password)
        self._until_ms.pop(digest, None)
        self._until_ms[digest] = now_ms + KEPT_MS
        if len(self._until_ms) > KEPT_MAX:
            del self._until_ms[next(iter(self._until_ms))]

    def _digest(self, found: Found, password: Secret) -> bytes:
        # The stored key has one length for each mechanism, so different inputs never give the same bytes.
        credential = found.credential
        return hmac.digest(self._key, credential.stored_key + password.reveal().encode(), "sha256")
