"""The checks of requests before a shard gets them. The shards rely on these checks.

Every check raises the exception of the error code with which the request is answered.
"""

from __future__ import annotations

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.kafka_types.writer import STRING_BYTES_MAX
from klamm.ledger_ids import is_misnamed
from klamm.wire.v1.coordinator_pb2 import JoinGroupRequest
from klamm_coordinator.groups.settings import GroupSettings
from klamm_coordinator.transaction.metadata import EPOCH_MAX, ProducerIdAndEpoch

PROTOCOL_COUNT_MAX = 100
"""The most assignors of one member. Clients have only five."""


def check_group_id(group_id: str) -> None:
    """Raises the exception of INVALID_GROUP_ID if the group id is empty, or too long for a record."""
    if not group_id:
        raise EXCEPTIONS[ErrorCode.INVALID_GROUP_ID]("the group id is empty")
    check_length(group_id, "the group id", ErrorCode.INVALID_GROUP_ID)


def check_transactional_id(transactional_id: str) -> None:
    """Raises the exception of INVALID_REQUEST if the transactional id is empty or too long for a record. An id with the
    prefix of batch ledgers must be the id of a part."""
    if not transactional_id:
        raise _invalid("the transactional id is empty")
    check_length(transactional_id, "the transactional id", ErrorCode.INVALID_REQUEST)
    if is_misnamed(transactional_id):
        raise _invalid(
            f"the transactional id {transactional_id!r} has the prefix of batch ledgers, but is not the id of one"
        )


def check_producer(producer_id: int, producer_epoch: int) -> ProducerIdAndEpoch:
    """Returns the producer that a request names. Raises the exception of INVALID_REQUEST if no producer can have these
    numbers."""
    if producer_id < 0 or not 0 <= producer_epoch <= EPOCH_MAX:
        raise _invalid(
            f"producer id is {producer_id} and epoch {producer_epoch}; expected an id of 0 or more and an epoch"
            f" from 0 to {EPOCH_MAX}"
        )
    return ProducerIdAndEpoch(producer_id, producer_epoch)


def check_join(request: JoinGroupRequest, settings: GroupSettings) -> None:
    """Raises the exception of INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT or INVALID_REQUEST if a field is not valid."""
    check_group_id(request.group_id)
    shortest, longest = settings.session_timeout_min_ms, settings.session_timeout_max_ms
    if not shortest <= request.session_timeout_ms <= longest:
        raise EXCEPTIONS[ErrorCode.INVALID_SESSION_TIMEOUT](
            f"session_timeout_ms is {request.session_timeout_ms}, expected {shortest} (group.min.session.timeout.ms)"
            f" to {longest} (group.max.session.timeout.ms)"
        )
    if request.rebalance_timeout_ms < 0:
        raise _invalid(f"rebalance_timeout_ms is {request.rebalance_timeout_ms}, expected 0 or more")
    for name in ("client_id", "group_instance_id", "protocol_type"):
        # The first two become part of a member id, which is a string of a record too.
        check_length(getattr(request, name), name, ErrorCode.INVALID_REQUEST, reserve_bytes=64)
    _check_protocols(request, settings.member_metadata_bytes_max)


def _check_protocols(request: JoinGroupRequest, bytes_max: int) -> None:
    names = {protocol.name for protocol in request.protocols}
    if len(names) != len(request.protocols):
        raise _invalid("a protocol is named twice")
    if len(names) > PROTOCOL_COUNT_MAX:
        raise _invalid(f"the member has {len(names)} protocols, expected at most {PROTOCOL_COUNT_MAX}")
    size_bytes = sum(len(protocol.name) + len(protocol.metadata) for protocol in request.protocols)
    if size_bytes > bytes_max:
        raise _invalid(
            f"the protocols and their metadata take {size_bytes} bytes, expected at most {bytes_max}"
            " (group.member.metadata.max.bytes)"
        )
    for name in names:
        check_length(name, "a protocol's name", ErrorCode.INVALID_REQUEST)


def check_length(text: str, name: str, code: ErrorCode, *, reserve_bytes: int = 0) -> None:
    size_bytes = len(text.encode())
    if size_bytes > STRING_BYTES_MAX - reserve_bytes:
        raise EXCEPTIONS[code](f"{name} has {size_bytes} bytes, expected at most {STRING_BYTES_MAX - reserve_bytes}")


def _invalid(message: str) -> Exception:
    return EXCEPTIONS[ErrorCode.INVALID_REQUEST](message)
