"""What a transport says of a call that failed, and the error code that its caller gets: the only table of its kind."""

from __future__ import annotations

import enum
from typing import Final

from klamm.errors import ErrorCode, KlammError


class Status(enum.Enum):
    """gRPC's statuses (https://grpc.io/docs/guides/status-codes/) but for OK, under its names."""

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
    Status.UNIMPLEMENTED: ErrorCode.UNSUPPORTED_VERSION,
    Status.UNAUTHENTICATED: ErrorCode.SASL_AUTHENTICATION_FAILED,
}
"""Any other status is an UNKNOWN_SERVER_ERROR."""
_TOO_LARGE: Final = "larger than max"


class CallFailed(KlammError):
    """A call ended with a status: raised by a transport to its caller, and by a servicer to refuse a call."""

    def __init__(self, status: Status, details: str = "") -> None:
        super().__init__(f"{status.name}: {details}" if details else status.name)
        self.status = status
        self.details = details or status.name

    @property
    def code(self) -> ErrorCode:
        """MESSAGE_TOO_LARGE when a message was larger than its receiver takes, which has no status of its own."""
        if self.status is Status.RESOURCE_EXHAUSTED and _TOO_LARGE in self.details:
            return ErrorCode.MESSAGE_TOO_LARGE
        return CODES.get(self.status, ErrorCode.UNKNOWN_SERVER_ERROR)

    def error(self, target: str) -> KlammError:
        """What the caller of `target` gets."""
        return self.code.exception(f"{target}: {self.details}")
