"""What a call says beside its request."""

from __future__ import annotations

from contextvars import ContextVar

Metadata = tuple[tuple[str, str | bytes], ...]

CALL_METADATA: ContextVar[Metadata] = ContextVar("call_metadata", default=())
"""The metadata of the calls that are begun in this context; the value is bytes where a name ends in `-bin`."""
