"""The target assignment of all members, computed for each new epoch. Only targets that changed are written.

(Kafka: TargetAssignmentBuilder.java)
"""

from __future__ import annotations

from klamm_coordinator.kip848.assignors import ASSIGNORS, AssignedMember
from klamm_coordinator.kip848.change import GroupChange
from klamm_coordinator.records.consumer_group_schemas import Target, TargetEpoch, TargetEpochKey, TargetKey


def update_target(change: GroupChange, default_assignor: str) -> None:
    """Computes the target assignment for the group's epoch, if there is none yet."""
    group = change.group
    if group.epoch == group.assignment_epoch:
        return
    members = {
        member_id: AssignedMember(
            instance_id=member.instance_id, topics=group.subscription(member), before=group.target(member_id)
        )
        for member_id, member in sorted(group.members.items())
    }
    assignor = ASSIGNORS[group.preferred_assignor(default_assignor)]
    targets = assignor(tuple(sorted(group.topics.values(), key=lambda topic: topic.name)), members)
    for member_id in members:
        target = frozenset(targets.get(member_id, ()))
        if member_id not in group.targets or group.targets[member_id] != target:
            change.write(TargetKey(group.group_id, member_id), Target(target))
    change.write(TargetEpochKey(group.group_id), TargetEpoch(group.epoch))
