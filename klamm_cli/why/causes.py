"""Decides why a group is behind: a tree of questions, the most certain causes first. Pure.

A group is well while the oldest unread record is young. Each cause comes with the one thing to do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from klamm.model import TopicPartition
from klamm_cli.text.amounts import counted, duration, record_count
from klamm_cli.why.facts import WhyFacts

WELL_MS: Final = 30_000
"""A group whose oldest unread record is younger than this keeps up."""
SILENT_MS: Final = 20_000
"""A group without members that has committed within this time is read by a program that joins no group, such as
Spark."""
STUCK_MS: Final = 60_000
"""A member that has committed the same offset for this long makes no progress, unless it usually commits more
rarely."""
HELD_MS: Final = 30_000
"""A transaction that has been open for this long holds readers back."""
REBALANCES_PER_HOUR: Final = 20
SLOW_POLL_SHARE: Final = 0.5
"""The part of max.poll.interval.ms between two commits from which a member is in danger of its removal."""
HOT_SHARE: Final = 0.5
"""The part of a topic's records that makes a partition hot, if it is also twice the usual part of a partition."""
SLOW_SHARE: Final = 0.6
"""The part of a group's unread records that makes the member that reads them a slow one."""
BURST_FACTOR: Final = 3
SLOWER_FACTOR: Final = 2
DELETED_SOON_MS: Final = 2 * 3_600_000


class Cause(NamedTuple):
    """A cause of lag or loss, and advice."""

    kind: str
    """A name for scripts, such as "hot-partition"."""
    text: str
    do: str
    """A command or a setting."""


def causes(facts: WhyFacts) -> list[Cause]:
    """Returns the causes, the most certain one first. A group that is well has none."""
    found = [*_lost(facts)]
    if facts.behind_ms() >= WELL_MS or _held(facts):
        found += next((some for some in (list(ask(facts)) for ask in _QUESTIONS) if some), [])
    return [*found, *_deleted_soon(facts)]


def hot_partition(facts: WhyFacts) -> TopicPartition | None:
    """Returns the partition that gets most of the records of its topic, or None."""
    for partition in facts.behind():
        share = _share_of_topic(facts, partition.tp)
        count = sum(tp.topic == partition.tp.topic for tp in facts.written)
        if count > 1 and share >= max(HOT_SHARE, min(0.9, 2 / count)):
            return partition.tp
    return None


def _share_of_topic(facts: WhyFacts, tp: TopicPartition) -> float:
    total = sum(written.recent_count for other, written in facts.written.items() if other.topic == tp.topic)
    return facts.written[tp].recent_count / total if total and tp in facts.written else 0.0


def _lost(facts: WhyFacts) -> Iterator[Cause]:
    losers = [partition for partition in facts.lag.partitions if partition.lost_count]
    if losers:
        names = ", ".join(str(loser.tp) for loser in losers[:3])
        more = f" and {len(losers) - 3} more" if len(losers) > 3 else ""
        yield Cause(
            "lost",
            f"{record_count(facts.lag.lost_count)} were deleted before the group read them: {names}{more}",
            "raise retention.ms or retention.bytes;"
            f" `klamm groups forget-lost {facts.lag.group_id}` sets the count to 0",
        )


def _deleted_soon(facts: WhyFacts) -> Iterator[Cause]:
    doomed = [
        (partition.next_deletion_ms, partition.tp)
        for partition in facts.behind()
        if partition.next_deletion_ms is not None
    ]
    if doomed:
        deletion_ms, tp = min(doomed)
        left_ms = max(0, deletion_ms - facts.lag.time_ms)
        if left_ms < DELETED_SOON_MS:
            yield Cause(
                "deleted-soon",
                f"retention deletes unread records in {duration(left_ms)}, first in {tp}",
                f"`klamm configs alter --topic {tp.topic} --set retention.ms=...`, with a greater value",
            )


def _no_members(facts: WhyFacts) -> Iterator[Cause]:
    if facts.members:
        return
    committed_ms = max((partition.committed_ms or 0 for partition in facts.lag.partitions), default=0)
    silent_ms = facts.lag.time_ms - committed_ms
    if silent_ms >= SILENT_MS:
        yield Cause(
            "no-members",
            f"the group has no members, and has committed nothing for {duration(silent_ms)}",
            "start the group's consumers, or the program that commits for it; their logs show why they ended",
        )


def _held(facts: WhyFacts) -> list[Cause]:
    """Returns the transaction because of which readers with read_committed get no records."""
    held = [
        partition
        for partition in facts.behind()
        if partition.held_since_ms is not None
        and facts.lag.time_ms - partition.held_since_ms >= HELD_MS
        and partition.committed_offset is not None
        and partition.last_stable_offset is not None
        and partition.committed_offset >= partition.last_stable_offset
    ]
    if not held:
        return []
    first = min(held, key=lambda partition: partition.held_since_ms or 0)
    age = duration(facts.lag.time_ms - (first.held_since_ms or 0))
    count = sum(partition.lag or 0 for partition in held)
    known = facts.transactions.get(first.held_by_producer_id or -1)
    if known is None:
        who, do = f"a transaction of producer id {first.held_by_producer_id}", "`klamm transactions find-hanging`"
    else:
        who = f"transaction {known.transactional_id!r}"
        do = (
            f"end it: `klamm transactions abort {known.transactional_id}`; its producer's transaction.timeout.ms"
            f" is {duration(known.timeout_ms)}"
        )
    text = f"{who} has been open for {age}, and holds {record_count(count)} back in {first.tp}"
    return [Cause("open-transaction", f"{text}: readers with read_committed wait for its end", do)]


def _rebalances(facts: WhyFacts) -> Iterator[Cause]:
    rate = facts.lag.rebalances_per_hour
    if facts.members and rate is not None and rate >= REBALANCES_PER_HOUR:
        yield Cause(
            "rebalances",
            f"the group is rebalanced again and again, {rate:.0f} times an hour: members come and go, or are removed",
            "raise max.poll.interval.ms, or lower max.poll.records, so that members poll in time; read their logs",
        )


def _slow_polls(facts: WhyFacts) -> Iterator[Cause]:
    """Yields the member that is nearest to its max.poll.interval.ms. The time between two commits is at least the time
    between two polls, if a program commits at most once a poll."""
    slow = [
        (interval_ms / member.rebalance_timeout_ms, interval_ms, member.rebalance_timeout_ms, member)
        for member in facts.members
        if member.rebalance_timeout_ms
        and (interval_ms := _commit_interval_ms(facts, member.member_id, member.rebalance_timeout_ms)) is not None
    ]
    if not slow:
        return
    share, interval_ms, timeout_ms, member = max(slow, key=lambda candidate: candidate[:2])
    if share < SLOW_POLL_SHARE:
        return
    rate = sum(partition.consumed_per_s or 0 for partition in facts.by_member()[member.member_id])
    pace = f"; a record takes it {1000 / rate:,.0f} ms" if rate else ""
    yield Cause(
        "slow-polls",
        f"member {member.client_id or member.member_id} at {member.client_host} commits every {duration(interval_ms)},"
        f" and is removed if it does not poll for {duration(timeout_ms)}{pace}",
        "lower max.poll.records, or raise max.poll.interval.ms of that consumer; make the processing faster",
    )


def _commit_interval_ms(facts: WhyFacts, member_id: str, timeout_ms: int) -> int | None:
    """Returns the time between two commits of a member that has had records to read for all that time. None if that is
    not known, or if the last commit is so old that the member does not poll any more."""
    known = [
        partition.commit_interval_ms
        for partition in facts.by_member()[member_id]
        if partition.commit_interval_ms is not None
        and (partition.behind_ms or 0) >= partition.commit_interval_ms
        and facts.lag.time_ms - (partition.unchanged_since_ms or 0) < timeout_ms
    ]
    return min(known, default=None)


def _stuck(facts: WhyFacts) -> Iterator[Cause]:
    owned = {tp for member in facts.members for tp in member.assignment}
    stuck = [
        partition
        for partition in facts.behind()
        if partition.tp in owned
        and partition.unchanged_since_ms is not None
        and facts.lag.time_ms - partition.unchanged_since_ms >= max(STUCK_MS, 2 * (partition.commit_interval_ms or 0))
        and (partition.behind_ms or 0) >= STUCK_MS
    ]
    if stuck:
        first = stuck[0]
        since = duration(facts.lag.time_ms - (first.unchanged_since_ms or 0))
        others = f", and {counted(len(stuck) - 1, 'other partition')}" if len(stuck) > 1 else ""
        yield Cause(
            "stuck",
            f"{first.tp} stays at offset {first.committed_offset} for {since}{others}: its record fails again and"
            " again, or its consumer hangs",
            f"look at the record: `klamm consume {first.tp.topic} -p {first.tp.partition} --from"
            f" {first.committed_offset} -n 1`; read the consumer's log",
        )


def _hot(facts: WhyFacts) -> Iterator[Cause]:
    tp = hot_partition(facts)
    if tp is None:
        return
    share = _share_of_topic(facts, tp)
    keys = "" if facts.sample is None or not facts.sample.keys else _hot_keys(facts)
    yield Cause(
        "hot-partition",
        f"{tp} gets {share:.0%} of the records of its topic{keys}",
        "choose keys that spread better, such as a key with a suffix; more consumers do not help one partition",
    )


def _hot_keys(facts: WhyFacts) -> str:
    assert facts.sample is not None
    first = facts.sample.keys[0]
    return f"; key {first.key} has {first.share:.0%} of {record_count(facts.sample.record_count)} sampled there"


def _idle(facts: WhyFacts) -> Iterator[Cause]:
    idle = [member for member in facts.members if not member.assignment]
    if idle and facts.description.state == "Stable":
        count = len({tp for member in facts.members for tp in member.assignment})
        yield Cause(
            "idle-members",
            f"{len(idle)} of {counted(len(facts.members), 'member')} have no partition, because there are only"
            f" {counted(count, 'partition')}",
            "make the processing faster, or add partitions (`klamm topics add-partitions`); more members do not help",
        )


def _slow_member(facts: WhyFacts) -> Iterator[Cause]:
    lags = {name: sum(part.lag or 0 for part in parts) for name, parts in facts.by_member().items() if parts}
    total = sum(lags.values())
    if len(lags) < 2 or not total:
        return
    name = max(lags, key=lambda lag: lags[lag])
    parts = facts.by_member()[name]
    owned = sum(map(len, facts.by_member().values()))
    if lags[name] / total < SLOW_SHARE or len(parts) / owned > 0.5:
        return
    member = next(candidate for candidate in facts.members if candidate.member_id == name)
    speed = _speed(facts, name)
    yield Cause(
        "slow-member",
        f"member {member.client_id or name} at {member.client_host} has {lags[name] / total:.0%} of the unread records"
        f"{speed}",
        "look at that process: its log, its CPU, what it calls;"
        f" `klamm groups describe {facts.lag.group_id} --members`",
    )


def _speed(facts: WhyFacts, name: str) -> str:
    def rate(member_id: str) -> float | None:
        rates = [partition.consumed_per_s for partition in facts.by_member()[member_id]]
        return None if None in rates else sum(known_rate for known_rate in rates if known_rate is not None)

    its_rate = rate(name)
    others = [other_rate for other in facts.by_member() if other != name and (other_rate := rate(other)) is not None]
    if its_rate is None or not others:
        return ""
    return f", and reads {its_rate:,.0f} records/s; the others read {sum(others) / len(others):,.0f}"


def _burst(facts: WhyFacts) -> Iterator[Cause]:
    known = [partition for partition in facts.written.values() if partition.before_per_s is not None]
    now, before = sum(partition.per_s for partition in known), sum(partition.before_per_s or 0 for partition in known)
    if before and now >= BURST_FACTOR * before:
        yield Cause(
            "burst",
            f"{now / before:.0f} times as many records are written as in the hour before: {now:,.0f} records/s, before"
            f" {before:,.0f}",
            "wait, if it ends soon; otherwise add consumers, at most one for each partition",
        )


def _slower(facts: WhyFacts) -> Iterator[Cause]:
    known = [partition for partition in facts.lag.partitions if partition.consumed_before_per_s is not None]
    now = sum(partition.consumed_per_s or 0 for partition in known)
    before = sum(partition.consumed_before_per_s or 0 for partition in known)
    if before and now * SLOWER_FACTOR <= before:
        yield Cause(
            "slower",
            f"the group reads {now:,.0f} records/s, in the hour before {before:,.0f}",
            "look at the consumers, and at the systems that they call",
        )


def _too_slow(facts: WhyFacts) -> Iterator[Cause]:
    behind = facts.behind()
    known = [
        partition
        for partition in facts.lag.partitions
        if partition.consumed_per_s is not None and partition.produced_per_s is not None
    ]
    read, written = (
        sum(partition.consumed_per_s or 0 for partition in known),
        sum(partition.produced_per_s or 0 for partition in known),
    )
    partitions = len({partition.tp for partition in facts.lag.partitions if partition.committed_offset is not None})
    readers = sum(bool(member.assignment) for member in facts.members)
    if not known:
        text = f"{record_count(facts.lag.lag)} wait in {counted(len(behind), 'partition')}; the rates are not known yet"
        yield Cause("behind", text, "ask again in a minute")
    elif read <= written:
        text = f"the group reads {read:,.0f} records/s, and {written:,.0f} are written"
        if readers and readers < partitions:
            yield Cause("too-slow", text, f"add consumers: {readers} read {counted(partitions, 'partition')}")
        else:
            yield Cause("too-slow", text, "make the processing faster, or add partitions and consumers")
    else:
        text = f"the group catches up: it reads {read:,.0f} records/s, and {written:,.0f} are written"
        yield Cause("catching-up", text, "wait")


_QUESTIONS: Final[tuple[Callable[[WhyFacts], Iterator[Cause] | list[Cause]], ...]] = (
    _no_members,
    _held,
    _rebalances,
    _slow_polls,
    _stuck,
    _hot,
    _idle,
    _slow_member,
    _burst,
    _slower,
    _too_slow,
)
