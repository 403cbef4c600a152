"""Reads the optional numbers of requests, which a client leaves out if it does not know them."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import Message

UNKNOWN: Final = -1
"""The number that Kafka's requests have instead of an absent one."""


def or_unknown(message: Message, field: str) -> int:
    """Returns the number in `field`, or UNKNOWN if the client left it out."""
    return given(message, field, UNKNOWN)


def given(message: Message, field: str, otherwise: int) -> int:
    """Returns the number in `field`, or `otherwise` if the client left it out."""
    return getattr(message, field) if message.HasField(field) else otherwise
