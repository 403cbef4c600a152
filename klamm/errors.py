"""Kafka's error codes, and an exception for each: the only such table of the project.

The numbers, names and the retriable flag are Kafka's (`org.apache.kafka.common.protocol.Errors`). A gRPC status says
whether the call arrived. One of these codes in the response says what happened to the partition, group or topic.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from typing import ClassVar, NamedTuple


class KlammError(Exception):
    """The base class of the exceptions that this project raises."""

    retriable: ClassVar[bool] = False
    """True if the same call may succeed later, although the caller changes nothing."""


class ConfigError(KlammError, ValueError):
    """The name or value of a setting is invalid. The text names it and the values that are allowed."""


class IllegalStateError(KlammError):
    """The call does not fit the state of the object (closed, not assigned, no transaction begun)."""


class ClosedError(IllegalStateError):
    """The client is closed. A call that waits when another task or a signal handler closes it raises this too."""


class ConcurrentAccessError(IllegalStateError):
    """A Consumer was used from two threads at once."""


class AuthenticationError(KlammError):
    """The server did not accept this client's login or certificate, or this client did not accept the server's."""


class SslAuthenticationError(AuthenticationError):
    """The handshake of TLS failed: one end does not accept the other's certificate, or does not speak TLS."""


class WakeupError(KlammError):
    """`Consumer.wakeup` interrupted a blocking call."""


class BufferExhaustedError(KlammError):
    """`buffer.memory` stayed full for `max.block.ms`."""

    retriable = True


class SerializationError(KlammError, TypeError):
    """A key, value or header is not bytes, and no serializer made it so."""


class PartitionerError(KlammError):
    """The partitioner of `partitioner.class` raised an exception, or chose a partition that the topic does not have."""


class DeliveryTimeoutError(KlammError):
    """A record was not acknowledged within `delivery.timeout.ms`; whether it was written is unknown."""


class NoBrokerError(KlammError):
    """The client could reach no bootstrap server and no known broker."""

    retriable = True


class WrongListenerError(NoBrokerError):
    """No server answered, and an address belongs to a listener for other clients: Kafka's, or those with TLS. Another
    attempt would not help."""

    retriable = False


class OtherRecordsInvalidError(KlammError):
    """The broker refused other records of this record's batch, so it wrote none of the batch (KIP-467).

    The record itself is valid, and the caller may send it again. `__cause__` names the refused records."""


class RecordError(NamedTuple):
    """The reason why the broker refused a record, and with it the whole batch (KIP-467)."""

    batch_index: int
    """The index of the record in its batch, from 0."""
    message: str


class BrokerError(KlammError):
    """An error code that a server returned. Each member of `ErrorCode` has its own subclass."""

    record_errors: tuple[RecordError, ...] = ()
    """The records that the broker refused, in the order of the batch. Empty if it refused none in particular."""

    code: ClassVar[ErrorCode]
    refresh_metadata: ClassVar[bool] = False
    """True if the client's metadata may be out of date, so that it must refresh them before it tries again."""

    def __init__(self, message: str = "") -> None:
        self.message = message or self.code.text
        """The server's text, or that of the code if the server sent none. It does not contain the code's name."""
        super().__init__(f"{self.code.name}: {self.message}")


class ErrorCode(enum.IntEnum):
    """Kafka's error codes. `text` is the error's message if the server sends none."""

    text: str
    retriable: bool
    refresh_metadata: bool
    """True if another server may be able to answer, so that the client must refresh its metadata.

    The flags are Kafka's, except that of REQUEST_TIMED_OUT. Kafka's clients close the connection then, and refresh
    their metadata for that reason."""

    def __new__(cls, value: int, text: str, retriable: bool = False, refresh_metadata: bool = False) -> ErrorCode:
        member = int.__new__(cls, value)
        member._value_ = value
        member.text = text
        member.retriable = retriable
        member.refresh_metadata = refresh_metadata
        return member

    UNKNOWN_SERVER_ERROR = -1, "The server met an unexpected error; its log says more."
    NONE = 0, "No error."
    OFFSET_OUT_OF_RANGE = 1, "The offset is outside the range this partition holds."
    CORRUPT_MESSAGE = 2, "A batch failed its checksum, or is malformed in another way.", True
    UNKNOWN_TOPIC_OR_PARTITION = 3, "This server does not host that topic-partition.", True, True
    INVALID_FETCH_SIZE = 4, "The fetch size is invalid."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader at the moment.", True, True
    NOT_LEADER_OR_FOLLOWER = 6, "This broker does not lead the partition.", True, True
    REQUEST_TIMED_OUT = 7, "The request timed out.", True, True
    BROKER_NOT_AVAILABLE = 8, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, "The replica is not available for the topic-partition.", True, True
    MESSAGE_TOO_LARGE = 10, "The batch is larger than the topic accepts (max.message.bytes)."
    STALE_CONTROLLER_EPOCH = 11, "The controller moved to another node."
    OFFSET_METADATA_TOO_LARGE = 12, "The metadata of the offset commit is too large."
    NETWORK_EXCEPTION = 13, "The server disconnected before a response was received.", True, True
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is loading this group; try again.", True
    COORDINATOR_NOT_AVAILABLE = 15, "No coordinator is available; try again.", True
    NOT_COORDINATOR = 16, "This is not the right coordinator for the group.", True
    INVALID_TOPIC_EXCEPTION = 17, "The topic name is not valid."
    RECORD_LIST_TOO_LARGE = 18, "The records are larger than the segment size of the topic."
    NOT_ENOUGH_REPLICAS = 19, "Fewer in-sync replicas than min.insync.replicas.", True
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, "Written, but to fewer in-sync replicas than required.", True
    INVALID_REQUIRED_ACKS = 21, "acks must be -1 (all), 0 or 1."
    ILLEGAL_GENERATION = 22, "The generation is not the group's current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member's protocols have nothing in common with the group's."
    INVALID_GROUP_ID = 24, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, "The coordinator does not know this member."
    INVALID_SESSION_TIMEOUT = 26, "The session timeout is outside the range the coordinator allows."
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing: rejoin."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The committed offset's data is too large."
    TOPIC_AUTHORIZATION_FAILED = 29, "Not authorized to access the topic."
    GROUP_AUTHORIZATION_FAILED = 30, "Not authorized to access the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, "Not authorized for this cluster operation."
    INVALID_TIMESTAMP = 32, "The timestamp is out of the acceptable range."
    UNSUPPORTED_SASL_MECHANISM = 33, "The SASL mechanism is not supported."
    ILLEGAL_SASL_STATE = 34, "The request does not fit the SASL state."
    UNSUPPORTED_VERSION = 35, "The version is not supported."
    TOPIC_ALREADY_EXISTS = 36, "A topic with this name already exists."
    INVALID_PARTITIONS = 37, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, "The replication factor is not valid or exceeds the live brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, "The replica assignment is not valid."
    INVALID_CONFIG = 40, "A configuration name or value is not valid."
    NOT_CONTROLLER = 41, "This is not the active controller.", True
    INVALID_REQUEST = 42, "The request is malformed."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The message format does not support the request."
    POLICY_VIOLATION = 44, "The request violates a configured policy."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "The producer's sequence number is out of order."
    DUPLICATE_SEQUENCE_NUMBER = 46, "The producer's sequence number was already written."
    INVALID_PRODUCER_EPOCH = 47, "The producer's epoch is older than the one known."
    INVALID_TXN_STATE = 48, "The transaction is in a state that does not allow the operation."
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id is not the one of its transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, "The transaction timeout exceeds the configured maximum."
    CONCURRENT_TRANSACTIONS = 51, "Another operation on this transaction is in progress.", True
    TRANSACTION_COORDINATOR_FENCED = 52, "The transaction coordinator was fenced by a newer one."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "Not authorized for the transactional id."
    SECURITY_DISABLED = 54, "Security features are disabled."
    OPERATION_NOT_ATTEMPTED = 55, "Not attempted, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, "The log directory of the partition is offline.", True, True
    LOG_DIR_NOT_FOUND = 57, "The log directory is not configured on the broker."
    SASL_AUTHENTICATION_FAILED = 58, "SASL authentication failed."
    UNKNOWN_PRODUCER_ID = 59, "The producer's state is no longer known."
    REASSIGNMENT_IN_PROGRESS = 60, "A reassignment of the partition is in progress."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are disabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, "The delegation token is unknown."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The principal does not own the token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "Token requests are not allowed on this connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "Not authorized for the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, "The principal type is not supported."
    NON_EMPTY_GROUP = 68, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, "The group does not exist."
    FETCH_SESSION_ID_NOT_FOUND = 70, "The fetch session is unknown.", True
    INVALID_FETCH_SESSION_EPOCH = 71, "The fetch session's epoch is not the expected one.", True
    LISTENER_NOT_FOUND = 72, "The leader has no listener of that name.", True, True
    TOPIC_DELETION_DISABLED = 73, "Deleting topics is disabled (delete.topic.enable)."
    FENCED_LEADER_EPOCH = 74, "The leader epoch of the request is older than the broker's.", True, True
    UNKNOWN_LEADER_EPOCH = 75, "The leader epoch of the request is newer than the broker's.", True, True
    UNSUPPORTED_COMPRESSION_TYPE = 76, "The compression type is not supported."
    STALE_BROKER_EPOCH = 77, "The broker epoch is not the current one."
    OFFSET_NOT_AVAILABLE = 78, "The leader's high watermark is not caught up after an election.", True
    MEMBER_ID_REQUIRED = 79, "Join again with the member id that was given."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader is not available.", True, True
    GROUP_MAX_SIZE_REACHED = 81, "The group is full, or the coordinator has no memory for the member."
    FENCED_INSTANCE_ID = 82, "A newer member took over this group.instance.id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No eligible leader is available.", True, True
    ELECTION_NOT_NEEDED = 84, "No election is needed for the partition.", False, True
    NO_REASSIGNMENT_IN_PROGRESS = 85, "No reassignment of the partition is in progress."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group is actively subscribed to the topic."
    INVALID_RECORD = 87, "A record was refused by the broker's validation."
    UNSTABLE_OFFSET_COMMIT = 88, "Offsets of an open transaction must be decided first.", True
    THROTTLING_QUOTA_EXCEEDED = 89, "The quota is exceeded.", True
    PRODUCER_FENCED = 90, "A newer producer with the same transactional id fenced this one."
    RESOURCE_NOT_FOUND = 91, "The resource does not exist."
    DUPLICATE_RESOURCE = 92, "The resource is named twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential does not meet the criteria."
    INCONSISTENT_VOTER_SET = 94, "The voter set is inconsistent with the quorum's."
    INVALID_UPDATE_VERSION = 95, "The update version is not valid."
    FEATURE_UPDATE_FAILED = 96, "The feature update failed."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "The forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, "The snapshot is not there."
    POSITION_OUT_OF_RANGE = 99, "The position is outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, "No topic has this id.", True, True
    DUPLICATE_BROKER_REGISTRATION = 101, "Another live broker is registered with this id."
    BROKER_ID_NOT_REGISTERED = 102, "The broker id is not registered."
    INCONSISTENT_TOPIC_ID = 103, "The topic id does not match the log's.", True, True
    INCONSISTENT_CLUSTER_ID = 104, "The cluster id is not this cluster's."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "The transactional id is unknown."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The session's topic id use is inconsistent.", True
    INELIGIBLE_REPLICA = 107, "The replica may not join the in-sync set."
    NEW_LEADER_ELECTED = 108, "The change led to another leader being elected."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset was moved to tiered storage."
    FENCED_MEMBER_EPOCH = 110, "The member epoch is fenced: leave and rejoin."
    UNRELEASED_INSTANCE_ID = 111, "The instance id is still used by another member."
    UNSUPPORTED_ASSIGNOR = 112, "The assignor is not supported by the group."
    STALE_MEMBER_EPOCH = 113, "The member epoch is stale: retry with the current one."
    MISMATCHED_ENDPOINT_TYPE = 114, "The endpoint is not of the kind the request wants."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "The endpoint kind is not supported."
    UNKNOWN_CONTROLLER_ID = 116, "The controller id is unknown."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The subscription id is unknown."
    TELEMETRY_TOO_LARGE = 118, "The telemetry is larger than allowed."
    INVALID_REGISTRATION = 119, "The registration is not valid."
    TRANSACTION_ABORTABLE = 120, "Abort this transaction; the producer may go on."
    INVALID_RECORD_STATE = 121, "The record is in a state that does not allow the acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, "The share session is unknown.", True
    INVALID_SHARE_SESSION_EPOCH = 123, "The share session's epoch is not valid.", True
    FENCED_STATE_EPOCH = 124, "The share coordinator's epoch was fenced."
    INVALID_VOTER_KEY = 125, "The voter key does not match the receiver's."
    DUPLICATE_VOTER = 126, "The voter is already part of the set."
    VOTER_NOT_FOUND = 127, "The voter is not part of the set."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, "The client must bootstrap again."

    @classmethod
    def of(cls, value: int) -> ErrorCode:
        """Returns the member for a number from the wire, or UNKNOWN_SERVER_ERROR if there is none."""
        try:
            return cls._value2member_map_[value]  # type: ignore[return-value]
        except KeyError:
            return cls.UNKNOWN_SERVER_ERROR

    def exception(self, message: str = "") -> BrokerError:
        """Returns the exception of this code, with `message` or else the text of the code."""
        return EXCEPTIONS[self](message)


_AUTHENTICATION = (
    ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    ErrorCode.ILLEGAL_SASL_STATE,
    ErrorCode.SASL_AUTHENTICATION_FAILED,
)
"""The codes that a failed login can return."""


def _exception_name(code: ErrorCode) -> str:
    if code is ErrorCode.SASL_AUTHENTICATION_FAILED:
        return "SaslAuthenticationError"  # the only one that Kafka's exception is not named like
    words = re.sub(r"_(EXCEPTION|ERROR)$", "", code.name).split("_")
    return "".join(word.capitalize() for word in words) + "Error"


EXCEPTIONS: dict[ErrorCode, type[BrokerError]] = {
    code: type(
        _exception_name(code),
        (AuthenticationError, BrokerError) if code in _AUTHENTICATION else (BrokerError,),
        {
            "code": code,
            "retriable": code.retriable,
            "refresh_metadata": code.refresh_metadata,
            "__doc__": code.text,
            "__module__": __name__,
        },
    )
    for code in ErrorCode
    if code is not ErrorCode.NONE
}
"""One exception class per code, e.g. `EXCEPTIONS[ErrorCode.NOT_COORDINATOR]` is `NotCoordinatorError`.

They are also attributes of this module: `klamm.errors.OffsetOutOfRangeError`."""

globals().update({exception.__name__: exception for exception in EXCEPTIONS.values()})


def __getattr__(name: str) -> type[BrokerError]:
    """Tells type checkers that the generated exception classes are attributes of this module."""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class CommitFailedError(KlammError):
    """The group moved on (a rebalance, a session time-out): these offsets can no longer be committed.

    The partitions may belong to another member by now. It will process the records since the last commit
    again."""


class AbortableTransactionError(KlammError):
    """The open transaction cannot commit any more. After an abort, the producer can begin the next one.

    `__cause__` is the error that led to this."""


class FatalProducerError(KlammError):
    """The transactional producer cannot continue, for example because a newer one has its transactional.id. Close it.

    `__cause__` is the error that led to this."""


def raise_for(code: int, message: str = "") -> None:
    """Raises the exception of `code` unless it is NONE."""
    if code:
        raise ErrorCode.of(code).exception(message)


def raise_first(errors: Sequence[BaseException]) -> None:
    """Raises the first error, with notes about the others. Does nothing if there is none."""
    if errors:
        for error in errors[1:]:
            errors[0].add_note(f"also: {error}")
        raise errors[0]
