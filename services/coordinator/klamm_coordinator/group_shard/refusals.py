"""The errors for the requester of a write whose append failed. The broker's own code would mean little to the
requester.

Follows Kafka's CoordinatorOperationExceptionHelper and GroupMetadataManager.appendGroupMetadataErrorToResponseError. A
commit that is too large gets INVALID_COMMIT_OFFSET_SIZE, because the requester caused the error.
"""

from __future__ import annotations

from dataclasses import replace

from klamm.errors import ErrorCode
from klamm_coordinator.classic.messages import HeartbeatReply, JoinReply, LeaveReply, SyncReply
from klamm_coordinator.group_shard.events import ConfirmOwnerReply, ForgetLossesReply
from klamm_coordinator.kip848.messages import ConsumerGroupHeartbeatReply
from klamm_coordinator.offsets.messages import (
    CommitReply,
    DeleteGroupsReply,
    DeleteOffsetsReply,
    EndTransactionReply,
)

Reply = (
    JoinReply
    | SyncReply
    | HeartbeatReply
    | LeaveReply
    | CommitReply
    | DeleteOffsetsReply
    | DeleteGroupsReply
    | EndTransactionReply
    | ConsumerGroupHeartbeatReply
    | ForgetLossesReply
    | ConfirmOwnerReply
)
_TOLD: dict[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    # These errors are about a transaction's producer. If the shard's own writer is fenced, the whole shard is closed.
    ErrorCode.INVALID_PRODUCER_EPOCH: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED: ErrorCode.PRODUCER_FENCED,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
}
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


def requester_error(broker_error: ErrorCode) -> ErrorCode:
    """Returns the error code for the requests that wait for a write, or NONE if the write had no error."""
    return _TOLD.get(broker_error, ErrorCode.UNKNOWN_SERVER_ERROR) if broker_error else ErrorCode.NONE


def refused(reply: Reply, broker_error: ErrorCode) -> Reply:
    """Returns the answer instead of `reply`, in which the codes of success are replaced by the failure's."""
    error = requester_error(broker_error)
    match reply:
        case ConsumerGroupHeartbeatReply():
            return ConsumerGroupHeartbeatReply(error=error, message=error.text, member_id=reply.member_id)
        case JoinReply():
            return JoinReply(error=error, member_id=reply.member_id)
        case LeaveReply():
            return LeaveReply(error=error)
        case ConfirmOwnerReply():
            return ConfirmOwnerReply(error=error)
        case CommitReply() | DeleteOffsetsReply():
            error = _offsets_error(broker_error)
            return replace(reply, errors=tuple(code or error for code in reply.errors))
        case ForgetLossesReply():
            return ForgetLossesReply(error=error)
        case EndTransactionReply():
            return EndTransactionReply(error=_offsets_error(broker_error))
        case _:
            raise AssertionError(f"not an answer that waits for a write: {reply}")


def _offsets_error(broker_error: ErrorCode) -> ErrorCode:
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if broker_error in _TOO_LARGE else requester_error(broker_error)
