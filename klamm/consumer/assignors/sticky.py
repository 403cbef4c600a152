"""The assignors sticky and cooperative-sticky: even assignments that change as little as possible (KIP-54, KIP-429).

Both compute the same assignment. They differ in how the leader learns which member had which partitions. Members with
`sticky` release all partitions before they join, so they send their former partitions as user data. Members with
`cooperative-sticky` still own their partitions and list them in the subscription. With the latter, a partition that
changes its owner is assigned to no member for one round. The owner sees that, releases the partition and joins again.
The next round assigns the partition to its new owner.

    user data of sticky              => [topic string, partitions [int32]] | generation int32
    user data of cooperative-sticky  => generation int32
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from klamm.consumer.assignors.balance import balance_general, balance_uniform
from klamm.consumer.assignors.base import (
    Assignments,
    Member,
    RebalanceProtocol,
    partitions_of,
    subscribers_by_topic,
)
from klamm.consumer.assignors.consumer_protocol import (
    NO_GENERATION,
    ConsumerProtocolError,
    ConsumerProtocolReader,
    write_partitions,
)
from klamm.kafka_types.writer import KafkaWriter
from klamm.model import TopicPartition

Claim = tuple[int, frozenset[TopicPartition]]
"""A generation, and the partitions that the member owned in it."""


class StickyAssignor:
    """Assigns partitions evenly and moves as few as possible. With equal subscriptions, member counts differ by at most
    one."""

    name = "sticky"
    rebalance_protocol = RebalanceProtocol.EAGER

    def user_data(self, owned: Iterable[TopicPartition], generation_id: int) -> bytes | None:
        writer = KafkaWriter()
        write_partitions(writer, owned)
        return writer.int32(generation_id).value()

    def assign(self, partition_counts: Mapping[str, int], members: Iterable[Member]) -> Assignments:
        members = list(members)
        claims = {member.member_id: _claim_in_user_data(member) for member in members}
        return assign_sticky(partition_counts, members, claims)


class CooperativeStickyAssignor:
    """Computes the same assignment as the sticky assignor, but applies it in two rounds. Members continue to consume
    the partitions that they keep."""

    name = "cooperative-sticky"
    rebalance_protocol = RebalanceProtocol.COOPERATIVE

    def user_data(self, owned: Iterable[TopicPartition], generation_id: int) -> bytes | None:
        return KafkaWriter().int32(generation_id).value()

    def assign(self, partition_counts: Mapping[str, int], members: Iterable[Member]) -> Assignments:
        members = list(members)
        claims = {member.member_id: _claim_in_subscription(member) for member in members}
        wanted = assign_sticky(partition_counts, members, claims)
        holders: dict[TopicPartition, set[str]] = {}
        for member in members:
            for partition in member.subscription.owned:
                holders.setdefault(partition, set()).add(member.member_id)
        return {
            member_id: [tp for tp in partitions if holders.get(tp, {member_id}) <= {member_id}]
            for member_id, partitions in wanted.items()
        }


def assign_sticky(
    partition_counts: Mapping[str, int], members: list[Member], claims: Mapping[str, Claim]
) -> Assignments:
    """Returns the balanced assignment that moves the fewest claimed partitions."""
    subscribers = subscribers_by_topic(partition_counts, members)
    partitions = partitions_of(subscribers, partition_counts)
    eligible = {topic: [member.member_id for member in of] for topic, of in subscribers.items()}
    owned: Assignments = {member.member_id: [] for member in sorted(members, key=lambda member: member.order)}
    for partition, owner in _owners(claims).items():
        exists = partition.partition < partition_counts.get(partition.topic, 0)
        if exists and owner in eligible.get(partition.topic, ()):
            owned[owner].append(partition)
    taken = {partition for kept in owned.values() for partition in kept}
    free = [partition for partition in partitions if partition not in taken]
    if all(len(of) == len(members) for of in eligible.values()):
        balance_uniform(owned, free)
    else:
        balance_general(owned, free, eligible)
    return {member_id: sorted(kept) for member_id, kept in owned.items()}


def _owners(claims: Mapping[str, Claim]) -> dict[TopicPartition, str]:
    """Returns the member that keeps each partition. If several members claim a partition, the claim with the newest
    generation counts. If several claims have that generation, no member keeps the partition."""
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member_id, (generation_id, partitions) in sorted(claims.items()):
        for partition in sorted(partitions):
            rival_generation, _ = best.get(partition, (NO_GENERATION - 1, None))
            if generation_id > rival_generation:
                best[partition] = generation_id, member_id
            elif generation_id == rival_generation:
                best[partition] = generation_id, None
    return {partition: owner for partition, (_, owner) in sorted(best.items()) if owner is not None}


def _claim_in_subscription(member: Member) -> Claim:
    return member.subscription.generation_id, frozenset(member.subscription.owned)


def _claim_in_user_data(member: Member) -> Claim:
    """Returns the claim in a member's user data. Another client's data may be damaged, or of a version without the
    generation."""
    data = member.subscription.user_data
    if not data:
        return NO_GENERATION, frozenset()
    try:
        reader = ConsumerProtocolReader(data)
        partitions = frozenset(reader.partitions())
    except ConsumerProtocolError:
        return NO_GENERATION, frozenset()
    try:
        return reader.int32(), partitions
    except ConsumerProtocolError:
        return NO_GENERATION, partitions
