"""The error that a broken rule is."""

from __future__ import annotations


class ViolationError(AssertionError):
    """A rule was broken; the message begins with its name."""


def require(holds: bool, message: str) -> None:
    """Raises ViolationError unless it holds."""
    if not holds:
        raise ViolationError(message)
