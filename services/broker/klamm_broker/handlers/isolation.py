"""Checks the isolation level of a read request."""

from __future__ import annotations

from klamm.errors import EXCEPTIONS, ErrorCode

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

_InvalidRequestError = EXCEPTIONS[ErrorCode.INVALID_REQUEST]


def reads_committed(isolation_level: int) -> bool:
    """Returns True for read_committed. Raises InvalidRequestError for a number that is no isolation level."""
    if isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise _InvalidRequestError(
            f"isolation level is {isolation_level}; expected 0 (read_uncommitted) or 1 (read_committed)"
        )
    return isolation_level == READ_COMMITTED
