"""The errors for a client when a record of its transaction cannot be appended.

Follows Kafka's TransactionStateManager.appendTransactionToLog."""

from __future__ import annotations

from klamm.errors import ErrorCode
from klamm_coordinator.transaction_shard.messages import Reply

_NOT_COORDINATOR = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INVALID_PRODUCER_EPOCH}
)
_NOT_AVAILABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


def requester_error(broker_error: ErrorCode) -> ErrorCode:
    """Returns the error code for the requests that wait for a failed append."""
    if broker_error in _NOT_COORDINATOR:
        return ErrorCode.NOT_COORDINATOR
    if broker_error in _NOT_AVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.UNKNOWN_SERVER_ERROR


def refused(reply: Reply, broker_error: ErrorCode) -> Reply:
    """Returns the error that is sent instead of `reply`, because the append failed."""
    return type(reply)(error=requester_error(broker_error))
