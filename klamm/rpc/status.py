"""The statuses of failed calls, and the error codes that callers get for them. This is the only such table."""

from __future__ import annotations

import enum
from typing import Final

from klamm.errors import ErrorCode, KlammError


class Status(enum.Enum):
    """gRPC's statuses except OK, under gRPC's names (https://grpc.io/docs/guides/status-codes/)."""

    CANCELLED = enum.auto()
    UNKNOWN = enum.auto()
    INVALID_ARGUMENT = enum.auto()
    DEADLINE_EXCEEDED = enum.auto()
    NOT_FOUND = enum.auto()
    ALREADY_EXISTS = enum.auto()
    PERMISSION_DENIED = enum.auto()
    RESOURCE_EXHAUSTED = enum.auto()
    FAILED_PRECONDITION = enum.auto()
    ABORTED = enum.auto()
    OUT_OF_RANGE = enum.auto()
    UNIMPLEMENTED = enum.auto()
    INTERNAL = enum.auto()
    UNAVAILABLE = enum.auto()
    DATA_LOSS = enum.auto()
    UNAUTHENTICATED = enum.auto()


CODES: Final = {
    Status.DEADLINE_EXCEEDED: ErrorCode.REQUEST_TIMED_OUT,
    Status.UNAVAILABLE: ErrorCode.NETWORK_EXCEPTION,
    Status.CANCELLED: ErrorCode.NETWORK_EXCEPTION,
    Status.RESOURCE_EXHAUSTED: ErrorCode.NETWORK_EXCEPTION,
    Status.INVALID_ARGUMENT: ErrorCode.INVALID_REQUEST,
    Status.PERMISSION_DENIED: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Status.FAILED_PRECONDITION: ErrorCode.POLICY_VIOLATION,
    Status.UNIMPLEMENTED: ErrorCode.UNSUPPORTED_VERSION,
    Status.UNAUTHENTICATED: ErrorCode.SASL_AUTHENTICATION_FAILED,
}
"""The error code of each status. Any other status becomes UNKNOWN_SERVER_ERROR."""
_TOO_LARGE: Final = "larger than max"


class CallFailed(KlammError):
    """A call ended with a status. A transport raises it to its caller, and a servicer raises it to refuse a call."""

    def __init__(self, status: Status, details: str = "") -> None:
        super().__init__(f"{status.name}: {details}" if details else status.name)
        self.status = status
        self.details = details or status.name

    @property
    def code(self) -> ErrorCode:
        """The error code of the status. It is MESSAGE_TOO_LARGE if a message exceeded the receiver's limit, which has
        no status of its own."""
        if self.status is Status.RESOURCE_EXHAUSTED and _TOO_LARGE in self.details:
            return ErrorCode.MESSAGE_TOO_LARGE
        return CODES.get(self.status, ErrorCode.UNKNOWN_SERVER_ERROR)

    def error(self, target: str) -> KlammError:
        """Returns the error for the caller of `target`."""
        return self.code.exception(f"{target}: {self.details}")
