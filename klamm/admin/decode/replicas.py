"""Decodes the reassignments that the controller lists."""

from __future__ import annotations

from klamm.admin.types.replicas import PartitionReassignment
from klamm.wire.v1 import controller_pb2


def partition_reassignment(message: controller_pb2.OngoingReassignment) -> PartitionReassignment:
    return PartitionReassignment(
        replicas=tuple(message.replicas),
        adding_replicas=tuple(message.adding_replicas),
        removing_replicas=tuple(message.removing_replicas),
        isr=tuple(message.isr),
    )
