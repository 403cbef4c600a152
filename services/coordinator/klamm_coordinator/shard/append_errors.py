"""What the requester of a write is told when its append fails: the broker's code means little to it.

Follows Kafka's CoordinatorOperationExceptionHelper and GroupMetadataManager.appendGroupMetadataErrorToResponseError;
too large a commit is INVALID_COMMIT_OFFSET_SIZE, which says whose fault it is.
"""

from __future__ import annotations

from klamm.errors import ErrorCode
from klamm_coordinator.effects import ReplyWhenStored, Then

_TOLD: dict[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    # Of a transaction's writer; that of the shard itself is fenced with the whole shard.
    ErrorCode.INVALID_PRODUCER_EPOCH: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED: ErrorCode.PRODUCER_FENCED,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
}
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


def requester_error(broker_error: ErrorCode, then: Then) -> ErrorCode:
    """The code for who waits for this write."""
    if broker_error in _TOO_LARGE and isinstance(then, ReplyWhenStored):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return _TOLD.get(broker_error, ErrorCode.UNKNOWN_SERVER_ERROR)
