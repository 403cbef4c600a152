"""The metadata that calls send beside their requests."""

from __future__ import annotations

from contextvars import ContextVar

Metadata = tuple[tuple[str, str | bytes], ...]

CALL_METADATA: ContextVar[Metadata] = ContextVar("call_metadata", default=())
"""The metadata of the calls that begin in this context. The value is bytes if the name ends in `-bin`."""
