"""The cluster's features and their levels (KIP-584): those that Apache Kafka 4.4 finalizes, except share and streams
groups.

A cluster has the levels of its software, and no others can be set, so supported and finalized levels are equal. The
level of `metadata.version` names the Kafka release whose requests Klamm understands. The records of the metadata log
are Klamm's own.
"""

from __future__ import annotations

from typing import Final

ELIGIBLE_LEADER_REPLICAS: Final = "eligible.leader.replicas.version"
GROUP: Final = "group.version"
KRAFT: Final = "kraft.version"
METADATA: Final = "metadata.version"
TRANSACTION: Final = "transaction.version"

LEVELS: Final = {
    ELIGIBLE_LEADER_REPLICAS: 1,  # KIP-966
    GROUP: 1,  # KIP-848
    KRAFT: 1,  # controllers join and leave, KIP-853
    METADATA: 33,  # 4.4-IV2
    TRANSACTION: 2,  # the second part of KIP-890
}

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
_UNSAFE_DOWNGRADE: Final = 3


def why_refused(feature: str, level: int, upgrade_type: int) -> str:
    """Returns why an update is refused with INVALID_UPDATE_VERSION, or "" if it changes nothing."""
    current = LEVELS.get(feature)
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        why = "The controller does not support the given upgrade type."
    elif level < 0:
        why = "A feature version cannot be less than 0."
    elif current is None:
        why = "The cluster does not support this feature."
    elif level < current and upgrade_type == UPGRADE:
        why = "Can't downgrade the version of this feature without setting the upgrade type."
    elif level != current:
        why = f"The cluster only supports version {current}."
    else:
        return ""
    return f"Invalid update version {level} for feature {feature}. {why}"
