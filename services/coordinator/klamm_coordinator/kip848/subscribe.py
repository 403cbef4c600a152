"""The first half of a heartbeat: it updates the member, and decides whether the group needs a new target.

    a new member             joins the group, as a dynamic or a static member
    an instance that left    is replaced by the member that joins with its id and gets its partitions (KIP-345); so is
                             an instance of the classic protocol
    a member at its epoch    may change its subscription
    one epoch behind         the last answer was lost, and is sent again, if the member lists its partitions and all of
                             them are assigned to it; otherwise the member is fenced
    a member at epoch 0      has lost its epoch, and gets its epoch and assignment as they are; nothing else changes,
                             because the request may be a late copy of an old one, whose answer no client reads

Follows Kafka's GroupMetadataManager.consumerGroupHeartbeat, with two differences. Kafka answers FENCED_MEMBER_EPOCH to
a member that comes back with epoch 0, until its session ends. Kafka also answers GROUP_ID_NOT_FOUND to a member whose
group is gone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Protocol

from klamm.errors import BrokerError, ErrorCode
from klamm_coordinator.groups.sizes import (
    PARTITION_BYTES,
    PROTOCOL_BYTES,
    TOPIC_BYTES,
    consumer_member_bytes,
    group_topic_bytes,
    text_bytes,
    texts_bytes,
)
from klamm_coordinator.groups.topics import Topics
from klamm_coordinator.kip848.change import GroupChange
from klamm_coordinator.kip848.group import JOIN_EPOCH, STATIC_LEAVE_EPOCH, UNJOINED, ConsumerGroup
from klamm_coordinator.kip848.messages import NO_TIMEOUT, ConsumerGroupHeartbeat
from klamm_coordinator.kip848.patterns import check_pattern, matching
from klamm_coordinator.records.consumer_group_schemas import (
    ConsumerMemberMetadata,
    CurrentKey,
    MemberKey,
    PartitionMetadata,
    PartitionMetadataKey,
    RegexKey,
    ResolvedRegex,
    Target,
    TargetKey,
    TopicMetadata,
)

REGEXES_MAX: Final = 10
"""The most regular expressions of one group. Its members usually have the same one."""
ASSIGNED_TWICE: Final = 2
"""A partition is in the target of one member and in the current assignment of one."""


class GrowthCheck(Protocol):
    """The check whether there is memory for a member."""

    def __call__(self, added_bytes: int, *, is_new: bool) -> None:
        """Raises GroupMaxSizeReachedError unless the group may have this many more bytes, because of a new member or a
        member that changes."""


def subscribe(
    change: GroupChange, request: ConsumerGroupHeartbeat, member_id: str, check_growth: GrowthCheck, *, size_max: int
) -> None:
    """Applies the heartbeat to the group. Raises a BrokerError if the heartbeat is refused."""
    if request.subscribed_topic_regex:
        check_pattern(request.subscribed_topic_regex)
        _check_regexes(change.group, request.subscribed_topic_regex, member_id)
    if request.member_epoch == JOIN_EPOCH:
        check_size(change.group, member_id, request.instance_id, size_max)
    replaced_id = replaced_member(change.group, request.instance_id, member_id)
    if replaced_id is not None:
        _check_memory(change.group, request, replaced_id, check_growth)
    if request.instance_id is None:
        check_epoch(change.group, request, member_id)
    else:
        _take_instance(change, request, request.instance_id, member_id)
    if replaced_id is None:
        _check_memory(change.group, request, member_id, check_growth)
    former = change.group.members.get(member_id)
    member = _said(former, request)
    if former is None:
        change.write(MemberKey(change.group_id, member_id), member)
        change.write(CurrentKey(change.group_id, member_id), UNJOINED)
    elif former != member:
        change.write(MemberKey(change.group_id, member_id), member)
    if former is None or subscribes_otherwise(former, member):
        change.bump_epoch()


def replaced_member(group: ConsumerGroup, instance_id: str | None, member_id: str) -> str | None:
    """Returns the id of the member whose instance this member has or asks for, or None if it is this member or none."""
    owner = None if instance_id is None else group.static_members.get(instance_id)
    return None if owner == member_id else owner


def _check_memory(
    group: ConsumerGroup, request: ConsumerGroupHeartbeat, former_id: str, check_growth: GrowthCheck
) -> None:
    former = group.members.get(former_id)
    member = _said(former, request)
    if former != member:
        check_growth(added_bytes(group, former, member, request.topics), is_new=former is None)


def added_bytes(
    group: ConsumerGroup, former: ConsumerMemberMetadata | None, member: ConsumerMemberMetadata, topics: Topics
) -> int:
    """Returns the bytes by which the group grows with this member. These are its names and metadata, and its topics
    with their partitions, unless another member subscribes to a topic already."""
    regex = member.subscribed_topic_regex
    names = set(member.subscribed_topic_names)
    size_bytes = consumer_member_bytes(member) - consumer_member_bytes(former)
    if regex is not None and regex not in group.regexes:
        matched = matching(regex, topics.names())
        names.update(matched)
        size_bytes += PROTOCOL_BYTES + texts_bytes(matched, TOPIC_BYTES)
    found = [(name, topics.get(name)) for name in names if name not in group.topics]
    size_bytes += sum(group_topic_bytes(name) for name, _ in found)
    return size_bytes + sum(
        TOPIC_BYTES + text_bytes(name) + ASSIGNED_TWICE * PARTITION_BYTES * info.partition_count
        for name, info in found
        if info is not None
    )


def refresh_topics(change: GroupChange, topics: Topics, *, wall_ms: int) -> None:
    """Updates the matches of expressions and the metadata of subscribed topics. Increments the epoch if anything
    changed."""
    group = change.group
    wanted = group.subscribed_regexes()
    for regex in sorted(wanted):
        try:
            resolved = ResolvedRegex(matching(regex, topics.names()), topics.version, wall_ms)
        except BrokerError:
            # Another program has stored the expression, for example Kafka. The topics that it matched stay.
            continue
        if regex not in group.regexes or group.regexes[regex].topics != resolved.topics:
            change.write(RegexKey(group.group_id, regex), resolved)
            change.bump_epoch()
    for regex in sorted(group.regexes.keys() - wanted):
        change.write(RegexKey(group.group_id, regex), None)
    found = tuple(_metadata(change.group, topics))
    if found != tuple(sorted(change.group.topics.values(), key=lambda topic: topic.name)):
        change.write(PartitionMetadataKey(group.group_id), PartitionMetadata(found))
        change.bump_epoch()


def check_epoch(group: ConsumerGroup, request: ConsumerGroupHeartbeat, member_id: str) -> None:
    """Raises UnknownMemberIdError if the member is not in the group, or FencedMemberEpochError if it cannot be at the
    request's epoch."""
    epoch = request.member_epoch
    if member_id not in group.members:
        if epoch == JOIN_EPOCH:
            return
        raise ErrorCode.UNKNOWN_MEMBER_ID.exception(f"{member_id!r} is not a member of group {group.group_id!r}")
    current = group.current(member_id)
    if epoch in (JOIN_EPOCH, current.member_epoch):
        return
    is_behind = epoch == current.previous_member_epoch and epoch < current.member_epoch
    if is_behind and request.owned is not None and request.owned <= current.assigned:
        return
    raise ErrorCode.FENCED_MEMBER_EPOCH.exception(
        f"member {member_id!r} of group {group.group_id!r} is at epoch {current.member_epoch}, not {epoch}:"
        " it must revoke all its partitions and join again"
    )


def check_instance(group: ConsumerGroup, instance_id: str, member_id: str) -> None:
    """Raises UnknownMemberIdError if the instance is not in the group, or FencedInstanceIdError if another member has
    it."""
    owner = group.static_members.get(instance_id)
    if owner is None:
        raise ErrorCode.UNKNOWN_MEMBER_ID.exception(f"instance {instance_id!r} is not in group {group.group_id!r}")
    if owner != member_id:
        raise ErrorCode.FENCED_INSTANCE_ID.exception(
            f"instance {instance_id!r} of group {group.group_id!r} is member {owner!r} now, not {member_id!r}"
        )


def check_size(group: ConsumerGroup, member_id: str, instance_id: str | None, size_max: int) -> None:
    """Raises GroupMaxSizeReachedError if this would be a new member and the group has `size_max` members."""
    is_in = member_id in group.members or instance_id in group.static_members
    if not is_in and len(group.members) >= size_max:
        raise ErrorCode.GROUP_MAX_SIZE_REACHED.exception(
            f"group {group.group_id!r} has {len(group.members)} members, expected at most {size_max}"
            " (group.consumer.max.size)"
        )


def _check_regexes(group: ConsumerGroup, regex: str, member_id: str) -> None:
    """Raises InvalidRegularExpressionError if the group's members have too many expressions. All are matched with all
    topics whenever a topic is created."""
    others = {member.subscribed_topic_regex for other_id, member in group.members.items() if other_id != member_id}
    others -= {None, regex}
    if len(others) >= REGEXES_MAX:
        raise ErrorCode.INVALID_REGULAR_EXPRESSION.exception(
            f"the members of group {group.group_id!r} have {len(others)} other regular expressions, expected at most"
            f" {REGEXES_MAX} in a group"
        )


def _take_instance(change: GroupChange, request: ConsumerGroupHeartbeat, instance_id: str, member_id: str) -> None:
    group = change.group
    owner = group.static_members.get(instance_id)
    if request.member_epoch != JOIN_EPOCH or owner == member_id:
        check_instance(group, instance_id, member_id)
        if owner == member_id and group.current(member_id).member_epoch == STATIC_LEAVE_EPOCH:
            return_as(change, member_id, member_id)
        check_epoch(change.group, request, member_id)
    elif owner is not None:
        if not group.is_classic(owner) and group.current(owner).member_epoch != STATIC_LEAVE_EPOCH:
            raise ErrorCode.UNRELEASED_INSTANCE_ID.exception(
                f"instance {instance_id!r} of group {group.group_id!r} is still used by member {owner!r}"
            )
        return_as(change, owner, member_id)


def return_as(change: GroupChange, former_id: str, member_id: str) -> None:
    """Lets a static member that has returned continue with its assignment, under its own id or another one."""
    group, group_id = change.group, change.group_id
    member, target, assigned = group.members[former_id], group.target(former_id), group.current(former_id).assigned
    if former_id != member_id:
        change.write(CurrentKey(group_id, former_id), None)
        change.write(TargetKey(group_id, former_id), None)
        change.write(MemberKey(group_id, former_id), None)
        change.write(MemberKey(group_id, member_id), member)
        change.write(TargetKey(group_id, member_id), Target(target))
    change.write(CurrentKey(group_id, member_id), replace(UNJOINED, assigned=assigned))


def _said(former: ConsumerMemberMetadata | None, request: ConsumerGroupHeartbeat) -> ConsumerMemberMetadata:
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    if former is None:
        return ConsumerMemberMetadata(
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            subscribed_topic_names=_sorted(names or ()),
            subscribed_topic_regex=regex or None,
            rebalance_timeout_ms=timeout_ms,
            server_assignor=request.server_assignor,
        )
    return replace(
        former,
        rack_id=former.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        subscribed_topic_names=former.subscribed_topic_names if names is None else _sorted(names),
        subscribed_topic_regex=former.subscribed_topic_regex if regex is None else regex or None,
        rebalance_timeout_ms=former.rebalance_timeout_ms if timeout_ms == NO_TIMEOUT else timeout_ms,
        server_assignor=former.server_assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def _sorted(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


def subscribes_otherwise(former: ConsumerMemberMetadata, member: ConsumerMemberMetadata) -> bool:
    """Returns True if the member's change needs a new target assignment."""
    return (
        former.subscribed_topic_names != member.subscribed_topic_names
        or former.subscribed_topic_regex != member.subscribed_topic_regex
        or former.server_assignor != member.server_assignor
    )


def _metadata(group: ConsumerGroup, topics: Topics) -> list[TopicMetadata]:
    found = ((name, topics.get(name)) for name in sorted(group.subscribed_topics()))
    return [TopicMetadata(info.topic_id, name, info.partition_count) for name, info in found if info is not None]
