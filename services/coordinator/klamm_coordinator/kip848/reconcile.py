"""The second half of a heartbeat: one step of a member from its current assignment towards its target assignment.

    keep      partitions that the member has and that are in its target
    revoke    partitions that the member has and that are not in its target; the member stays at its epoch, and no other
              member gets these partitions before this member reports that it has released them
    take      partitions of its target that have no owner; the member then is at the target's epoch
    wait      for the other partitions of its target

So a partition never has two owners, and no member stops its work until others have released their partitions.
(Kafka: CurrentAssignmentBuilder.java)
"""

from __future__ import annotations

from klamm_coordinator.kip848.group import ConsumerGroup
from klamm_coordinator.records.consumer_group_schemas import NO_PARTITIONS, Current, MemberState, Partitions


def next_current(group: ConsumerGroup, member_id: str, owned: Partitions | None) -> Current:
    """Returns the member's next assignment, or the current one if the member has to wait.

    `owned` are the partitions that the member reports as its own; None if it reports no change."""
    current = group.current(member_id)
    if group.is_reconciled(current):
        return current
    epoch = current.member_epoch
    if current.state is MemberState.UNREVOKED_PARTITIONS:
        if not _has_given_up(current.pending_revocation, owned):
            return current
        epoch += 1  # distinguishes later commits from those before the revocation
    return _step(group, current, group.target(member_id), epoch, owned)


def _step(group: ConsumerGroup, current: Current, target: Partitions, epoch: int, owned: Partitions | None) -> Current:
    kept = current.assigned & target
    revoked = current.assigned - kept
    if revoked and not _has_given_up(revoked, owned):
        return _moved(current, epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
    wanted = target - kept
    free = frozenset(partition for partition in wanted if partition not in group.owners)
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED_PARTITIONS
    return _moved(current, group.assignment_epoch, state, kept | free, NO_PARTITIONS)


def _has_given_up(partitions: Partitions, owned: Partitions | None) -> bool:
    return owned is not None and not owned & partitions


def _moved(
    current: Current, epoch: int, state: MemberState, assigned: Partitions, pending_revocation: Partitions
) -> Current:
    return Current(
        member_epoch=epoch,
        # The previous epoch changes only together with the epoch.
        previous_member_epoch=current.member_epoch if epoch != current.member_epoch else current.previous_member_epoch,
        state=state,
        assigned=assigned,
        pending_revocation=pending_revocation,
    )
