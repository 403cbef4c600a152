"""A heartbeat's second half: one step of a member from what it has towards what it is to have.

    keep      what it has and is to have
    revoke    what it has and is not to have: it is told, stays at its epoch, and nobody gets that before it says that
              it has given it up
    take      what it is to have and nobody has; then it is at the target's epoch
    wait      for the rest

So a partition never has two owners, and nobody stops for what others have to do.
(Kafka: CurrentAssignmentBuilder.java)
"""

from __future__ import annotations

from klamm_coordinator.consumer.group import ConsumerGroup
from klamm_coordinator.records.consumer_group_schemas import NO_PARTITIONS, Current, MemberState, Partitions


def next_current(group: ConsumerGroup, member_id: str, owned: Partitions | None) -> Current:
    """What the member has next; the same when it has to wait. `owned`: what it says that it has, None: nothing new."""
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
