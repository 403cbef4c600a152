"""Asks the cluster for the facts about a spread. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from klamm.errors import EXCEPTIONS, ErrorCode, GroupIdNotFoundError
from klamm.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from klamm_cli.spread.facts import Names, SpreadFacts, TopicFacts, partitions_of
from klamm_cli.spread.group_steps import GroupFacts

if TYPE_CHECKING:
    from klamm import Admin
    from klamm.admin import GroupLagDescription, PartitionLagDescription, TopicDescription
    from klamm.offsets import OffsetAndMetadata

_TransactionalIdNotFoundError = EXCEPTIONS[ErrorCode.TRANSACTIONAL_ID_NOT_FOUND]
_UnstableError = EXCEPTIONS[ErrorCode.UNSTABLE_OFFSET_COMMIT]
_UnknownTopicError = EXCEPTIONS[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

STABLE_MS: Final = 3_000
"""How long offsets may be those of an open transaction. After that, they count as unknown."""


def gather(admin: Admin, names: Names, partitions: int, *, stable_ms: int | None = None) -> SpreadFacts:
    """Returns the facts. Waits for `stable_ms` while a transaction of a copier is open.

    Raises UnknownTopicOrPartitionError if the source does not exist, and other KlammErrors."""
    source = topic_facts(admin, admin.describe_topics([names.source])[names.source])
    try:
        target = topic_facts(admin, admin.describe_topics([names.target])[names.target])
    except _UnknownTopicError:
        return SpreadFacts(names=names, partitions=partitions, source=source)
    # Read the offsets last, because a copier may run at the same time.
    offsets = _offsets(admin, names, stable_ms)
    return SpreadFacts(names=names, partitions=partitions, source=source, target=target, offsets=offsets)


def topic_facts(admin: Admin, topic: TopicDescription) -> TopicFacts:
    """Returns the offsets of a topic. Raises KlammError."""
    tps = partitions_of(topic.name, len(topic.partitions))
    earliest, latest = dict.fromkeys(tps, EARLIEST_TIMESTAMP), dict.fromkeys(tps, LATEST_TIMESTAMP)
    # The stable ends are read first. So they are equal to the ends only if no transaction was open in between.
    stable = admin.list_offsets(latest, read_committed=True)
    ends, starts = admin.list_offsets(latest), admin.list_offsets(earliest)
    return TopicFacts(
        topic_id=topic.topic_id,
        internal=topic.internal,
        starts={tp.partition: start.offset for tp, start in starts.items()},
        ends={tp.partition: end.offset for tp, end in ends.items()},
        stable_ends={tp.partition: end.offset for tp, end in stable.items()},
    )


def fence_copiers(admin: Admin, names: Names) -> None:
    """Ends the transactions that killed copiers left open. Their offsets cannot be read before that. A copier that
    still runs fails. Raises KlammError."""
    described = admin.describe_topics([names.source])[names.source]
    for partition in described.partitions:
        try:
            admin.fence_producers([names.transactional_id(partition.partition)])
        except _TransactionalIdNotFoundError:
            continue


def foreign_partitions(admin: Admin, facts: SpreadFacts) -> list[int]:
    """Returns the partitions of the target to which a producer has written that is none of the copiers."""
    ids = {_producer_id(admin, facts.names.transactional_id(number)) for number in facts.source.ends}
    described = admin.describe_producers(partitions_of(facts.names.target, facts.partitions))
    return sorted(tp.partition for tp, states in described.items() if {state.producer_id for state in states} - ids)


def source_groups(admin: Admin, facts: SpreadFacts) -> Iterator[GroupFacts]:
    """Yields the groups that have offsets in the source, in the order of their ids. Raises KlammError."""
    sources = partitions_of(facts.names.source, len(facts.source.ends))
    targets = partitions_of(facts.names.target, 0 if facts.target is None else len(facts.target.ends))
    for group_id in admin.list_groups():
        if group_id == facts.names.group_id:
            continue
        try:
            committed = admin.list_group_offsets(
                group_id, [*sources, *targets], require_stable=True, timeout_ms=STABLE_MS
            )
            if not committed.keys() & set(sources):
                continue
            lag = admin.describe_group_lag([group_id])[group_id]
            members = admin.describe_groups([group_id])[group_id].members
        except GroupIdNotFoundError:
            continue
        except _UnstableError:
            yield GroupFacts(group_id=group_id, lag=None, member_count=0)
            continue
        yield GroupFacts(
            group_id=group_id,
            lag=source_lag(facts, lag),
            member_count=len(members),
            target_offsets={tp.partition: committed[tp].offset for tp in targets if tp in committed},
        )


def source_lag(facts: SpreadFacts, group: GroupLagDescription) -> int | None:
    """Returns how many records of the source the group has still to read. Returns None if that is not known. A
    partition in which it has no offset counts as a whole. Pure."""
    known = {
        partition.tp.partition: partition for partition in group.partitions if partition.tp.topic == facts.names.source
    }
    lags = [_partition_lag(facts, number, known.get(number)) for number in facts.source.ends]
    return sum(lag or 0 for lag in lags) if None not in lags else None


def _partition_lag(facts: SpreadFacts, number: int, partition: PartitionLagDescription | None) -> int | None:
    if partition is None or (partition.committed_offset is None and not partition.error):
        return max(0, facts.source.ends[number] - facts.source.starts[number])
    return partition.lag


def _offsets(admin: Admin, names: Names, stable_ms: int | None) -> dict[TopicPartition, OffsetAndMetadata]:
    try:
        return admin.list_group_offsets(names.group_id, require_stable=True, timeout_ms=stable_ms)
    except GroupIdNotFoundError:
        return {}


def _producer_id(admin: Admin, transactional_id: str) -> int:
    """Returns the producer id of a copier, or -1 if it has none."""
    try:
        return admin.describe_transactions([transactional_id])[transactional_id].producer_id
    except _TransactionalIdNotFoundError:
        return -1
