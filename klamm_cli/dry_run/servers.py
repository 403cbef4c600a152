"""The errors with which the controllers would refuse to change the servers of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.errors import ErrorCode

if TYPE_CHECKING:
    from klamm.admin import ClusterDescription, QuorumDescription, ServerDescription


def find_registered(cluster: ClusterDescription, broker_id: int) -> ServerDescription:
    """Returns the broker. Raises the error of a request to unregister a broker that is not registered."""
    found = next((broker for broker in cluster.brokers if broker.node_id == broker_id), None)
    if found is None:
        raise ErrorCode.BROKER_ID_NOT_REGISTERED.exception(f"broker {broker_id} is not registered")
    return found


def check_added_voter(quorum: QuorumDescription, controller_id: int) -> None:
    """Raises the error of a request to add a voter whose id another voter has."""
    if controller_id in _voters(quorum):
        raise _refusal(ErrorCode.DUPLICATE_VOTER, controller_id)


def check_removed_voter(quorum: QuorumDescription, controller_id: int) -> None:
    """Raises the error of a request to remove the last voter."""
    if _voters(quorum) == [controller_id]:
        raise _refusal(ErrorCode.INVALID_REQUEST, controller_id)


def _voters(quorum: QuorumDescription) -> list[int]:
    return [replica.node_id for replica in quorum.replicas if replica.is_voter]


def _refusal(code: ErrorCode, controller_id: int) -> Exception:
    return code.exception(f"controller {controller_id}: {code.text}")
