"""Text that is never shown, for passwords, private keys and tokens in memory."""

from __future__ import annotations

import hmac
from typing import Any, Final

HIDDEN: Final = "[hidden]"
"""The text that is shown instead of a secret, as in Kafka."""


class Secret(str):
    """Text that only `reveal` returns. Printed, formatted, joined, encoded or written as JSON, it is "[hidden]". So
    code that shows values need not know which values are secret.

    A secret is equal only to another secret of the same text. A pickle contains the secret, because Spark's tasks get
    the settings of their clients in a pickle."""

    __slots__ = ("_text",)
    _text: str

    def __new__(cls, text: str) -> Secret:
        """Makes a secret of a text, or of the text of another secret."""
        secret = super().__new__(cls, HIDDEN)
        secret._text = text.reveal() if isinstance(text, Secret) else text
        return secret

    def reveal(self) -> str:
        """Returns the secret text."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    def __str__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(_bytes(self), _bytes(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> tuple[Any, ...]:
        return Secret, (self._text,)


def _bytes(secret: Secret) -> bytes:
    return secret.reveal().encode(errors="surrogatepass")
