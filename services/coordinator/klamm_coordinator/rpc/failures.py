"""The error texts in responses."""

from __future__ import annotations

from klamm.errors import ErrorCode


def text_of(code: ErrorCode) -> str:
    """Returns the text of an error code, or an empty text for NONE."""
    return code.text if code else ""
