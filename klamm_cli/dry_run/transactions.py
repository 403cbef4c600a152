"""The errors with which a transaction is not aborted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.errors import ErrorCode

if TYPE_CHECKING:
    from klamm.admin import TopicDescription, TransactionDescription


def check_open(described: TransactionDescription) -> None:
    """Raises InvalidTxnStateError unless the id has an open transaction."""
    if described.state != "Ongoing":
        raise ErrorCode.INVALID_TXN_STATE.exception(
            f"{described.transactional_id!r} has no open transaction: it is {described.state}"
        )


def check_partition(topic: TopicDescription) -> None:
    """Raises InvalidRequestError for an internal topic, whose transactions only coordinators end."""
    if topic.internal:
        raise ErrorCode.INVALID_REQUEST.exception(f"topic {topic.name} is internal")
