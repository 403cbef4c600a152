"""The state of a classic group and its members. The rules that decide what a member may do are in the other modules of
this package.

Invariants (`check_invariants`): Empty means no members; a leader is a member; static ids and members name each other; a
member is pending to join or in the group, never both; parked joins exist only while members (re)join or while a static
member's return is being stored; parked syncs exist only in CompletingRebalance; each counter equals the number of the
things that it counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from klamm.errors import ErrorCode
from klamm_coordinator.classic.member import ClassicMember
from klamm_coordinator.classic.messages import JoinedMember, Protocol
from klamm_coordinator.classic.states import TRANSITIONS, ClassicGroupState
from klamm_coordinator.classic.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from klamm_coordinator.groups.sizes import GROUP_BYTES, PENDING_MEMBER_BYTES, text_bytes
from klamm_coordinator.records.schemas import NO_TIMESTAMP, ClassicMemberMetadata, GroupMetadataValue


class ClassicGroup:
    """A classic group. It keeps its members in the order they joined, so that every choice among them is the same on
    every run."""

    def __init__(self, group_id: str, *, state_timestamp_ms: int = NO_TIMESTAMP) -> None:
        self.group_id = group_id
        self.state = ClassicGroupState.EMPTY
        self.previous_state = ClassicGroupState.DEAD
        self.generation_id = 0
        self.protocol_type: str | None = None
        """The protocol type, or None if no member ever joined and the group only stores offsets."""
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.state_timestamp_ms = state_timestamp_ms
        """The wall clock's time of the last change of state, in ms. The retention time of offsets counts from it
        (KIP-211)."""
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """The ids of the static members, by group.instance.id."""
        self.pending_joins: dict[str, None] = {}
        """The member ids that were sent with MEMBER_ID_REQUIRED and have not joined yet (KIP-394). A dict keeps their
        order."""
        self.pending_syncs: dict[str, None] = {}
        """The ids of the members of this generation that have not asked for their assignment."""
        self.subscribed_topics: frozenset[str] | None = None
        """The subscribed topics, or None if the members are not consumers, or their metadata does not parse."""
        self.new_member_added = False
        """True if a member joined during the initial rebalance since the delay was last set."""
        self.initial_rebalance_end_ms = 0
        """The monotonic time in ms at which the initial rebalance ends even if members keep joining."""
        self.awaiting_join_count = 0
        self.size_bytes = GROUP_BYTES + text_bytes(group_id)
        """The memory that the group takes, in bytes, without its stored record and its offsets."""
        self.counted_bytes = 0
        """The part of `size_bytes` that is in the accounts of the shard."""
        self._supported: Counter[str] = Counter()
        """The number of members that support each protocol."""

    @classmethod
    def restore(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        """Returns the group as it was stored: Stable if it has members, otherwise Empty."""
        group = cls(group_id, state_timestamp_ms=value.current_state_timestamp_ms)
        group.generation_id = value.generation_id
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol_name
        group.leader = value.leader
        for stored in value.members:
            group.add(_restore_member(stored, value.protocol_name or ""), value.protocol_type)
        if value.leader not in group.members:
            group.leader = next(iter(group.members), None)
        if value.members:
            group.state = ClassicGroupState.STABLE
        group.update_subscribed_topics()
        return group

    def become_stable(self, generation_id: int) -> None:
        """Makes a group Stable at this generation. Its members were just added, and were in no rebalance."""
        assert self.state is ClassicGroupState.EMPTY, self.state
        self.generation_id = generation_id
        self.protocol_name = self.select_protocol()
        self.state = ClassicGroupState.STABLE
        self.update_subscribed_topics()

    @classmethod
    def revive(cls, dead: ClassicGroup) -> ClassicGroup:
        """Returns the Empty group that `dead` was before its deletion failed."""
        assert not dead.members, list(dead.members)
        group = cls(dead.group_id, state_timestamp_ms=dead.state_timestamp_ms)
        group.generation_id = dead.generation_id
        group.protocol_type = dead.protocol_type
        group.update_subscribed_topics()
        return group

    # Properties

    @property
    def is_simple(self) -> bool:
        """True while the group only stores offsets and has no members."""
        return self.protocol_type is None and not self.members and not self.pending_joins

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of any member, in ms."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def has_all_members_joined(self) -> bool:
        return self.awaiting_join_count == len(self.members) and not self.pending_joins

    def is_subscribed_to(self, topic: str) -> bool:
        """Returns True if a member subscribes to the topic, or if the subscriptions of a consumer group are unknown."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """Returns True if all members still have a protocol in common after a member with these protocols joins."""
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(
            self._supported[protocol.name] == count for protocol in protocols
        )

    def member_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Returns the error with which a request in this member's name is refused, or NONE."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """Returns all members, for the leader's JoinGroup answer."""
        return tuple(
            JoinedMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                metadata=member.metadata(self.protocol_name),
            )
            for member in self.members.values()
        )

    def to_value(self, assignments: dict[str, bytes]) -> GroupMetadataValue:
        """Returns the value to store for the group. Members without an assignment get an empty one."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation_id=self.generation_id,
            protocol_name=self.protocol_name,
            leader=self.leader,
            current_state_timestamp_ms=self.state_timestamp_ms,
            members=tuple(
                ClassicMemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol_name),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ),
        )

    # Changes of the group

    def transition_to(self, state: ClassicGroupState, wall_ms: int) -> None:
        """Moves the group to `state`. `TRANSITIONS` must allow the move."""
        assert state in TRANSITIONS[self.state], f"{self.group_id}: {self.state.value} -> {state.value}"
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = wall_ms

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Adds a member whose protocols the group supports. The first member becomes the leader."""
        assert member.member_id not in self.members, member.member_id
        assert member.instance_id is None or member.instance_id not in self.static_members, member.instance_id
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type, (self.protocol_type, protocol_type)
        self.leader = self.leader or member.member_id
        self.remove_pending(member.member_id)
        self._insert(member)

    def remove(self, member_id: str) -> ClassicMember:
        """Removes and returns a member. If it was the leader, the member that joined first becomes the leader."""
        member = self._take(member_id)
        self.pending_syncs.pop(member_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace(self, member_id: str, successor: ClassicMember) -> None:
        """Replaces a static member by `successor`, the same instance with a new member id."""
        leads = self.leader == member_id
        self._take(member_id)
        self._insert(successor)
        if member_id in self.pending_syncs:
            del self.pending_syncs[member_id]
            self.pending_syncs[successor.member_id] = None
        if leads:
            self.leader = successor.member_id

    def update(
        self,
        member: ClassicMember,
        *,
        protocols: tuple[Protocol, ...],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Updates a member with the protocols and timeouts that it sends when it joins again."""
        self._count(member.protocols, -1)
        self.size_bytes -= member.size_bytes
        member.protocols = protocols
        self.size_bytes += member.size_bytes
        self._count(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def set_assignment(self, member: ClassicMember, assignment: bytes) -> None:
        """Sets the assignment of a member."""
        self.size_bytes += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def add_pending(self, member_id: str) -> None:
        """Adds a member id that was sent with MEMBER_ID_REQUIRED."""
        assert member_id not in self.pending_joins, member_id
        self.pending_joins[member_id] = None
        self.size_bytes += PENDING_MEMBER_BYTES + text_bytes(member_id)

    def remove_pending(self, member_id: str) -> bool:
        """Removes a member id that has not joined. Returns False if there is no such id."""
        if member_id not in self.pending_joins:
            return False
        del self.pending_joins[member_id]
        self.size_bytes -= PENDING_MEMBER_BYTES + text_bytes(member_id)
        return True

    def park_join(self, member: ClassicMember, reply_id: int) -> None:
        """Parks the member's JoinGroup. An earlier JoinGroup must have been removed with `take_join`."""
        assert member.join_reply_id is None, member
        member.join_reply_id = reply_id
        self.awaiting_join_count += 1

    def take_join(self, member: ClassicMember) -> int | None:
        """Removes and returns the reply id of the member's parked JoinGroup, so that the caller can answer it. None if
        there is none."""
        reply_id, member.join_reply_id = member.join_reply_id, None
        if reply_id is not None:
            self.awaiting_join_count -= 1
        return reply_id

    def elect_joined_leader(self) -> bool:
        """Makes sure that the leader is a member that has joined. Returns False if no member has joined."""
        if self.leader is not None and self.members[self.leader].is_awaiting_join:
            return True
        joined = next((member for member in self.members.values() if member.is_awaiting_join), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    def begin_generation(self, wall_ms: int) -> None:
        """Begins the next generation with the current members. The group becomes CompletingRebalance, or Empty without
        members."""
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.pending_syncs = dict.fromkeys(self.members)
        self.update_subscribed_topics()
        self.transition_to(ClassicGroupState.COMPLETING_REBALANCE if self.members else ClassicGroupState.EMPTY, wall_ms)

    def select_protocol(self) -> str:
        """Returns the protocol with the most votes among those that all members support. On a tie, the protocol voted
        for first wins."""
        count = len(self.members)
        candidates = {name for name, supporters in self._supported.items() if supporters == count}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def update_subscribed_topics(self) -> None:
        """Updates the subscribed topics from the members' metadata for the chosen protocol."""
        if not self.uses_consumer_protocol:
            self.subscribed_topics = None
        elif not self.members:
            self.subscribed_topics = frozenset()
        else:
            self.subscribed_topics = subscribed_topics(
                member.metadata(self.protocol_name) for member in self.members.values()
            )

    def check_invariants(self) -> None:
        """Asserts the invariants that the module's docstring lists."""
        members = self.members.values()
        assert self.state is not ClassicGroupState.EMPTY or not self.members
        assert self.leader is None or self.leader in self.members, (self.leader, list(self.members))
        assert (self.leader is None) == (not self.members)
        by_instance = {m.instance_id: m.member_id for m in members if m.instance_id is not None}
        assert by_instance == self.static_members, (by_instance, self.static_members)
        assert not self.pending_joins.keys() & self.members.keys()
        assert self.pending_syncs.keys() <= self.members.keys()
        assert self.awaiting_join_count == sum(m.is_awaiting_join for m in members)
        assert all(m.join_reply_id is None or m.sync_reply_id is None for m in members)
        may_join = (ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.STABLE)
        assert self.state in may_join or not self.awaiting_join_count
        assert self.state is ClassicGroupState.COMPLETING_REBALANCE or all(m.sync_reply_id is None for m in members)
        supported = Counter(protocol.name for member in members for protocol in member.protocols)
        assert +self._supported == supported, (self._supported, supported)
        pending_bytes = sum(PENDING_MEMBER_BYTES + text_bytes(member_id) for member_id in self.pending_joins)
        size_bytes = GROUP_BYTES + text_bytes(self.group_id) + pending_bytes + sum(m.size_bytes for m in members)
        assert self.size_bytes == size_bytes, (self.size_bytes, size_bytes)

    def _insert(self, member: ClassicMember) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.awaiting_join_count += member.is_awaiting_join
        self.size_bytes += member.size_bytes
        self._count(member.protocols, 1)

    def _take(self, member_id: str) -> ClassicMember:
        member = self.members.pop(member_id)
        assert not member.is_awaiting_join, member_id
        assert member.sync_reply_id is None, member_id
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        self.size_bytes -= member.size_bytes
        self._count(member.protocols, -1)
        return member

    def _count(self, protocols: Iterable[Protocol], change: int) -> None:
        for protocol in protocols:
            self._supported[protocol.name] += change
            if not self._supported[protocol.name]:
                del self._supported[protocol.name]


def _restore_member(stored: ClassicMemberMetadata, protocol_name: str) -> ClassicMember:
    return ClassicMember(
        member_id=stored.member_id,
        instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=stored.session_timeout_ms,
        rebalance_timeout_ms=(
            stored.session_timeout_ms if stored.rebalance_timeout_ms == -1 else stored.rebalance_timeout_ms
        ),
        protocols=(Protocol(name=protocol_name, metadata=stored.subscription),),
        assignment=stored.assignment,
    )
