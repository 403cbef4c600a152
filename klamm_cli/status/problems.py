"""Lists the problems of a cluster in sentences, the worst first. Pure.

A cluster without problems is healthy: every server is live, every partition has its replicas in sync, and the disks
have room. Lag and open transactions belong to the clients, so they are no problems. A hanging transaction is one, and
so is a group that lost records: retention deleted them before the group read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from klamm.admin.types import ClusterDescription, QuorumDescription, QuorumReplicaKind
from klamm.model import TopicPartition
from klamm_cli.status.facts import ClusterFacts
from klamm_cli.status.group_lag import GroupLag
from klamm_cli.text.amounts import duration

LISTED_MAX: Final = 10
"""The largest number of partitions, or of other names, in one sentence."""
DISK_FULL_PERCENT: Final = 90
SILENT_MS_MAX: Final = 5_000
"""A controller that sends no fetch for a longer time is a problem. Controllers fetch from their leader several times a
second."""
QUORUM_LAG_MAX: Final = 1_000
"""A controller that is more entries than this behind the leader is a problem."""


class Problem(NamedTuple):
    """A problem of a cluster, and advice."""

    text: str
    advice: str


def problems(facts: ClusterFacts) -> list[Problem]:
    """Returns the problems. A healthy cluster has none."""
    return [
        *_of_controllers(facts),
        # A dead server is the cause of most problems of partitions.
        *_of_servers(facts.cluster),
        *_of_partitions(facts),
        *_of_disks(facts),
        *_of_damage(facts),
        *_of_transactions(facts),
        *_of_groups(facts),
        *(
            Problem(f"{part}: not known ({reason})", "see whether the servers that should tell it are alive")
            for part, reason in facts.unknown.items()
        ),
    ]


def name_some(tps: Sequence[object]) -> str:
    """Returns a list of names as text, such as `a-0, a-1 and 5 more`."""
    shown = ", ".join(map(str, tps[:LISTED_MAX]))
    return f"{shown} and {len(tps) - LISTED_MAX} more" if len(tps) > LISTED_MAX else shown


def _of_controllers(facts: ClusterFacts) -> Iterator[Problem]:
    if facts.cluster.controller_id < 0:
        yield Problem(
            "no controller is active: metadata cannot change, leaders cannot be elected",
            "start controllers until a majority of the voters runs, and see that they reach each other",
        )
    if facts.quorum is not None:
        yield from _of_quorum(facts.quorum)


def _of_quorum(quorum: QuorumDescription) -> Iterator[Problem]:
    for replica in quorum.replicas:
        name = f"{replica.kind.name.lower()} {replica.node_id}"
        if replica.kind is not QuorumReplicaKind.CONTROLLER or replica.node_id == quorum.leader_id:
            continue
        if replica.is_voter and replica.silent_ms > SILENT_MS_MAX:
            yield Problem(
                f"{name} was last heard {replica.silent_ms / 1000:.0f} s ago",
                "start it, or replace it: `klamm cluster remove-controller` and `add-controller`",
            )
        elif replica.is_voter and replica.lag > QUORUM_LAG_MAX:
            yield Problem(
                f"{name} is {replica.lag} entries behind the leader of its quorum",
                "see whether its disk or its network is slow: it may not be elected meanwhile",
            )


_OFFLINE_ADVICE: Final = (
    "start the brokers that have them; if their disks are lost, `klamm topics elect-leaders --unclean` makes do with"
    " what is left, and loses records"
)
_MIN_ISR_ADVICE: Final = (
    "start the brokers that are missing; where the replication factor is smaller than min.insync.replicas, change one"
    " of them (`klamm configs`, `klamm reassign`)"
)


_RESIGNED_ADVICE: Final = (
    "make room on the disk of the leader: shorten retention (retention.ms, retention.bytes), move replicas"
    " (`klamm reassign`), or add room; or bring back another replica"
)


def _of_partitions(facts: ClusterFacts) -> Iterator[Problem]:
    total = len(facts.partitions())
    for found, what, advice in (
        (facts.offline(), "without a leader: neither read nor written", _OFFLINE_ADVICE),
        (facts.led_by_resigned(), "led by a broker that has resigned: refuse records", _RESIGNED_ADVICE),
        (facts.under_min_isr(), "below min.insync.replicas: refuse records with acks=all", _MIN_ISR_ADVICE),
        (facts.under_replicated(), "under-replicated", "start the brokers that are missing, or see why they lag"),
    ):
        if found:
            yield Problem(f"{len(found)} of {_count(total, 'partition')} {what}: {name_some(found)}", advice)
    for broker_id, count in facts.resigned().items():
        yield Problem(
            f"broker {broker_id}: {_count(count, 'replica')} resigned, and will not lead while others can",
            "its disk is full, or a log is damaged: the broker's log says which; it takes part again by itself",
        )


def _of_servers(cluster: ClusterDescription) -> Iterator[Problem]:
    for broker in cluster.brokers:
        if broker.fenced:
            yield Problem(
                f"broker {broker.node_id} is fenced: its heartbeats do not come",
                "start it, or let it go: `klamm cluster decommission` and `unregister`",
            )
        elif broker.in_controlled_shutdown:
            yield Problem(f"broker {broker.node_id} is shutting down", "start it again when its upgrade is done")
    for coordinator in cluster.coordinators:
        if coordinator.fenced:
            yield Problem(
                f"coordinator {coordinator.node_id} is fenced: its heartbeats do not come",
                "start it; others have taken over its groups and transactions",
            )
    for kind, servers in (("broker", cluster.brokers), ("coordinator", cluster.coordinators)):
        if all(server.fenced for server in servers):
            yield Problem(f"no {kind} is live", f"start a {kind}")


def _of_disks(facts: ClusterFacts) -> Iterator[Problem]:
    for broker_id, directories in sorted(facts.log_dirs.items()):
        for directory in directories:
            used = used_percent(directory.total_bytes, directory.usable_bytes)
            if not directory.online:
                yield Problem(
                    f"broker {broker_id}: log directory {directory.path} is offline",
                    "the broker's log has the error; mend or replace the disk and restart the broker",
                )
            elif used is not None and used >= DISK_FULL_PERCENT:
                yield Problem(
                    f"broker {broker_id}: the disk of {directory.path} is {used} % full",
                    "shorten retention (retention.ms, retention.bytes), move replicas (`klamm reassign`), or add room",
                )


def _of_damage(facts: ClusterFacts) -> Iterator[Problem]:
    for broker_id, replicas in sorted(facts.damaged.items()):
        damages = [damage for replica in replicas for damage in replica.unrepaired]
        if damages:
            reasons = "; ".join(sorted({damage.text for damage in damages})[:_REASONS_MAX])
            yield Problem(
                f"broker {broker_id}: {_count(len(damages), 'damaged segment')} not repaired, of"
                f" {name_some([replica.tp for replica in replicas])} ({reasons})",
                "`klamm log scrub --status` shows which bytes; bring another replica in sync, and look after the disk",
            )


_REASONS_MAX: Final = 3


def used_percent(total_bytes: int, usable_bytes: int) -> int | None:
    """Returns how full a file system is, in percent, or None if its size is not known."""
    return round(100 * (total_bytes - usable_bytes) / total_bytes) if total_bytes > 0 else None


def _of_transactions(facts: ClusterFacts) -> Iterator[Problem]:
    if facts.hanging:
        tps: list[TopicPartition] = sorted({transaction.tp for transaction in facts.hanging})
        yield Problem(
            f"{_count(len(facts.hanging), 'transaction')} hanging, nothing after it is read with read_committed:"
            f" {name_some(tps)}",
            "`klamm transactions find-hanging` has where it begins, `klamm transactions abort --hanging-in` ends it",
        )


DELETED_SOON_MS: Final = 2 * 3_600_000
"""Unread records that retention deletes within this time are a problem."""
STANDS_MS: Final = 10 * 60_000
"""A group without members whose offsets have not changed for this long does not read any more."""

_LOST_ADVICE: Final = (
    "keep records longer (retention.ms, retention.bytes), or make the consumers faster; `klamm groups forget-lost` sets"
    " the count to 0; if nobody needs the group, delete it: `klamm groups delete`"
)
_DELETED_SOON_ADVICE: Final = (
    "raise retention.ms or retention.bytes of the topic (`klamm configs alter`), then start the group's consumers or"
    " make them faster"
)
_NO_MEMBERS_ADVICE: Final = "start the group's consumers; if nobody needs the group, delete it: `klamm groups delete`"


def _of_groups(facts: ClusterFacts) -> Iterator[Problem]:
    groups = facts.groups or ()
    losers = [group for group in groups if group.lost]
    yield from _listed(losers, _lost, "lost records, deleted before the groups read them", _LOST_ADVICE)
    doomed = [group for group in groups if group.deletion_ms is not None and group.deletion_ms < DELETED_SOON_MS]
    doomed.sort(key=lambda group: group.deletion_ms or 0)
    yield from _listed(doomed, _deleted_soon, "have unread records that retention deletes soon", _DELETED_SOON_ADVICE)
    left = [group for group in groups if group not in doomed and _is_left(group)]
    yield from _listed(left, _without_members, "have unread records and no members", _NO_MEMBERS_ADVICE)


def _listed(
    groups: Sequence[GroupLag], tell: Callable[[GroupLag], str], tell_others: str, advice: str
) -> Iterator[Problem]:
    """Yields a problem for each of the first groups, and one for all others together."""
    for group in groups[:LISTED_MAX]:
        yield Problem(f"group {group.group_id} {tell(group)}", advice)
    if others := groups[LISTED_MAX:]:
        names = name_some([other.group_id for other in others])
        yield Problem(f"{_count(len(others), 'more group')} {tell_others}: {names}", advice)


def _lost(group: GroupLag) -> str:
    where = name_some([f"{tp} ({lost})" for tp, lost in group.lost.items()])
    return f"lost {_count(group.lost_count, 'record')}, deleted before the group read them: {where}"


def _deleted_soon(group: GroupLag) -> str:
    members = " and no members" if group.state == "Empty" else ""
    return (
        f"has {_count(group.lag, 'unread record')}{members}; retention deletes the first ones in"
        f" {duration(group.deletion_ms or 0)}: {name_some(group.doomed)}"
    )


def _is_left(group: GroupLag) -> bool:
    """Returns True if the group has no members, and its lag stands."""
    return group.state == "Empty" and group.unchanged_ms is not None and group.unchanged_ms >= STANDS_MS


def _without_members(group: GroupLag) -> str:
    return (
        f"has no members and {_count(group.lag, 'unread record')}, and has committed nothing for"
        f" {duration(group.unchanged_ms or 0)}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
