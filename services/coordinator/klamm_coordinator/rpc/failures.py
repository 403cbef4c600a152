"""Translates outcomes to the errors in a response's body."""

from __future__ import annotations

from klamm.errors import ErrorCode


def text_of(code: ErrorCode) -> str:
    """The table's text of a code; nothing for a success."""
    return code.text if code else ""
