"""Who leads now, with the answer of a broker that does not (KIP-951): a tagged field of Produce and of Fetch."""

from __future__ import annotations

import struct

from klamm_broker.rpc.leader_hints import AnsweredPartition

_LEADER = struct.Struct(">iiB")
"""Leader id, leader epoch, and no tagged fields of its own."""


def leader_hint(tag: int, partition: AnsweredPartition) -> list[tuple[int, bytes]]:
    """The field, as `Writer.tagged_fields` takes it; none where there is nothing to say."""
    if not partition.error_code or partition.current_leader < 0:
        return []
    return [(tag, _LEADER.pack(partition.current_leader, partition.current_leader_epoch, 0))]
