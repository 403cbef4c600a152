"""What an election of leaders would do, by the controller's rules (`klamm_controller.metadata.elections`)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from klamm.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from klamm.admin import ElectionType, PartitionDescription

NO_LEADER = -1


def election_error(
    name: str, number: int, partition: PartitionDescription | None, kind: ElectionType, active: Collection[int]
) -> BrokerError | None:
    """Returns the error of an election in this partition, or None if it would succeed. `active` are the brokers that
    may lead. A partition of None does not exist."""
    from klamm.admin import ElectionType

    if partition is None:
        message = f"partition {name}-{number} does not exist"
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.exception(message)
    preferred = partition.replicas[0]
    if kind is ElectionType.PREFERRED:
        not_needed, code = partition.leader == preferred, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        elected = _clean_leader(partition, active) == preferred
    else:
        not_needed, code = partition.leader != NO_LEADER, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        elected = bool(_able(partition, active))
    if not_needed:
        message = f"partition {name}-{number} is led by broker {partition.leader}"
        return ErrorCode.ELECTION_NOT_NEEDED.exception(message)
    if elected:
        return None
    return code.exception(
        f"partition {name}-{number}: no eligible replica among {list(partition.replicas)}, of which"
        f" {list(partition.isr)} are in sync; the active brokers are {sorted(active)}"
    )


def _able(partition: PartitionDescription, active: Collection[int]) -> list[int]:
    return [
        replica for replica in partition.replicas if replica in active and replica not in partition.offline_replicas
    ]


def _clean_leader(partition: PartitionDescription, active: Collection[int]) -> int:
    """Returns the leader that an election of the preferred replica would choose."""
    clean = partition.isr or partition.elr
    candidates = [replica for replica in _able(partition, active) if replica in clean]
    # The preferred replica is the first one. A resigned replica leads only if all candidates have resigned.
    return min(candidates, key=lambda candidate: candidate in partition.resigned_replicas, default=NO_LEADER)
