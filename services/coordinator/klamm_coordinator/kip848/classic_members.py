"""Members of a consumer group that use the classic protocol, while the group moves from one protocol to the other
(KIP-848).

    JoinGroup    updates the member, and then makes one step towards its target, as a heartbeat of the consumer protocol
                 does; the member's epoch is its generation
    SyncGroup    gets the member's current assignment; there is no leader
    Heartbeat    gets REBALANCE_IN_PROGRESS if the next JoinGroup would make a step

As in Kafka, a member may join with an id that the group does not know. If such a member says that it has partitions, it
was fenced, and others may have got them. It then gets UNKNOWN_MEMBER_ID, as in a classic group, and gives them up.

Follows Kafka's GroupMetadataManager.classicGroupJoinToConsumerGroup, classicGroupSyncToConsumerGroup and
classicGroupHeartbeatToConsumerGroup.
"""

from __future__ import annotations

from dataclasses import replace

from klamm.errors import BrokerError, ErrorCode
from klamm_coordinator.classic.messages import Heartbeat, JoinGroup, JoinReply, SyncGroup, SyncReply
from klamm_coordinator.classic.subscription import (
    CONSUMER_PROTOCOL_TYPE,
    Subscription,
    encode_assignment,
    read_subscription,
)
from klamm_coordinator.kip848.change import GroupChange
from klamm_coordinator.kip848.group import UNJOINED, ConsumerGroup
from klamm_coordinator.kip848.subscribe import (
    GrowthCheck,
    added_bytes,
    check_instance,
    check_size,
    replaced_member,
    return_as,
    subscribes_otherwise,
)
from klamm_coordinator.kip848.upgrade import topic_id_partitions
from klamm_coordinator.records.codec import SchemaError
from klamm_coordinator.records.consumer_group_schemas import (
    ClassicSettings,
    ConsumerMemberMetadata,
    CurrentKey,
    MemberKey,
    MemberState,
    Partitions,
    SupportedProtocol,
)


def join(change: GroupChange, request: JoinGroup, member_id: str, check_growth: GrowthCheck, *, size_max: int) -> None:
    """Applies the JoinGroup to the group. The member has this id, which is new if the request has none.

    Raises a BrokerError if the join is refused."""
    check_size(change.group, member_id, request.instance_id, size_max)
    subscription = check_protocols(change.group, request)
    replaced_id = replaced_member(change.group, request.instance_id, member_id)
    if replaced_id is not None:
        _check_memory(change.group, request, subscription, replaced_id, check_growth)
    if request.instance_id is not None:
        _take_instance(change, request, request.instance_id, member_id)
    former = change.group.members.get(member_id)
    if former is None and subscription.owned:
        raise ErrorCode.UNKNOWN_MEMBER_ID.exception(
            f"{member_id!r} is not a member of group {request.group_id!r}, but has {len(subscription.owned)} partitions"
        )
    if replaced_id is None:
        _check_memory(change.group, request, subscription, member_id, check_growth)
    member = _said(former, request, subscription)
    if former != member:
        change.write(MemberKey(change.group_id, member_id), member)
    if member_id not in change.group.currents:
        change.write(CurrentKey(change.group_id, member_id), UNJOINED)
    if former is None or subscribes_otherwise(former, member):
        change.bump_epoch()


def _check_memory(
    group: ConsumerGroup, request: JoinGroup, subscription: Subscription, former_id: str, check_growth: GrowthCheck
) -> None:
    former = group.members.get(former_id)
    member = _said(former, request, subscription)
    if former != member:
        check_growth(added_bytes(group, former, member, request.topics), is_new=former is None)


def check_protocols(group: ConsumerGroup, request: JoinGroup) -> Subscription:
    """Returns the member's subscription. Raises InconsistentGroupProtocolError unless the member is a consumer, its
    metadata parses, and it has a protocol that all other members of the classic protocol support."""
    others = [
        {protocol.name for protocol in member.classic.protocols}
        for member in group.members.values()
        if member.classic is not None
    ]
    is_shared = any(all(protocol.name in names for names in others) for protocol in request.protocols)
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not is_shared:
        raise ErrorCode.INCONSISTENT_GROUP_PROTOCOL.exception(
            f"the protocols of member {request.member_id!r} are not supported by group {request.group_id!r}"
        )
    try:
        return read_subscription(request.protocols[0].metadata)
    except SchemaError as error:
        raise ErrorCode.INCONSISTENT_GROUP_PROTOCOL.exception(
            f"the metadata of member {request.member_id!r} is not a consumer's: {error}"
        ) from error


def owned_partitions(request: JoinGroup) -> Partitions:
    """Returns the partitions that the member says it owns. The request's metadata must parse."""
    return topic_id_partitions(read_subscription(request.protocols[0].metadata).owned, request.topics)


def join_reply(group: ConsumerGroup, member_id: str) -> JoinReply:
    """Returns the JoinGroup answer for a member of the classic protocol. No member is the leader."""
    return JoinReply(
        member_id=member_id,
        generation_id=group.current(member_id).member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=_settings(group, member_id).protocols[0].name,
    )


def sync_reply(group: ConsumerGroup, request: SyncGroup) -> SyncReply:
    """Returns the member's current assignment, or the error."""
    error = _sync_error(group, request)
    if error is not ErrorCode.NONE:
        return SyncReply(error=error)
    first = _settings(group, request.member_id).protocols[0]
    assigned = group.by_topic(group.current(request.member_id).assigned)
    return SyncReply(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=first.name,
        assignment=encode_assignment(assigned, read_subscription(first.metadata).version),
    )


def heartbeat_error(group: ConsumerGroup, request: Heartbeat) -> ErrorCode:
    """Returns NONE, REBALANCE_IN_PROGRESS if the member has to join again, or the error of a member that is not in the
    group at that generation."""
    error = _member_error(group, request)
    if error is not ErrorCode.NONE:
        return error
    return ErrorCode.REBALANCE_IN_PROGRESS if _must_join(group, request.member_id) else ErrorCode.NONE


def session_timeout_ms(member: ConsumerMemberMetadata, default_ms: int) -> int:
    """Returns the member's session timeout. `default_ms` is that of all members of the consumer protocol."""
    return default_ms if member.classic is None else member.classic.session_timeout_ms


def _settings(group: ConsumerGroup, member_id: str) -> ClassicSettings:
    settings = group.members[member_id].classic
    assert settings is not None, member_id
    return settings


def _take_instance(change: GroupChange, request: JoinGroup, instance_id: str, member_id: str) -> None:
    """Lets the member have the instance id. A member without an id of its own replaces the member that has it."""
    if request.member_id:
        check_instance(change.group, instance_id, member_id)
        return
    owner = change.group.static_members.get(instance_id)
    if owner is not None:
        return_as(change, owner, member_id)


def _said(
    former: ConsumerMemberMetadata | None, request: JoinGroup, subscription: Subscription
) -> ConsumerMemberMetadata:
    member = ConsumerMemberMetadata(
        instance_id=request.instance_id,
        rack_id=subscription.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        subscribed_topic_names=tuple(sorted(set(subscription.topics))),
        subscribed_topic_regex=None,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        server_assignor=None,
        classic=ClassicSettings(
            request.session_timeout_ms,
            tuple(SupportedProtocol(protocol.name, protocol.metadata) for protocol in request.protocols),
        ),
    )
    if former is None:
        return member
    instance_id = former.instance_id if request.instance_id is None else request.instance_id
    return replace(member, instance_id=instance_id, rack_id=subscription.rack_id or former.rack_id)


def _member_error(group: ConsumerGroup, request: Heartbeat | SyncGroup) -> ErrorCode:
    try:
        if request.instance_id is not None:
            check_instance(group, request.instance_id, request.member_id)
    except BrokerError as error:
        return error.code
    if not group.is_classic(request.member_id):
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_current = request.generation_id == group.current(request.member_id).member_epoch
    return ErrorCode.NONE if is_current else ErrorCode.ILLEGAL_GENERATION


def _sync_error(group: ConsumerGroup, request: SyncGroup) -> ErrorCode:
    error = _member_error(group, request)
    if error is not ErrorCode.NONE:
        return error
    name = _settings(group, request.member_id).protocols[0].name
    if request.protocol_type not in ("", CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in ("", name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    current = group.current(request.member_id)
    # A member that must revoke partitions has joined already, and learns from this answer what it keeps.
    is_behind = group.epoch > current.member_epoch and current.state is not MemberState.UNREVOKED_PARTITIONS
    return ErrorCode.REBALANCE_IN_PROGRESS if is_behind else ErrorCode.NONE


def _must_join(group: ConsumerGroup, member_id: str) -> bool:
    current = group.current(member_id)
    if current.member_epoch < group.epoch or current.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    missing = group.target(member_id) - current.assigned
    return current.state is MemberState.UNRELEASED_PARTITIONS and not any(
        partition in group.owners for partition in missing
    )
