"""Asks a cluster for its state. Parts that do not answer are named, because people ask when half a cluster is down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from klamm.admin.types import (
    ConfigResource,
    ConfigResourceType,
    LogDirDescription,
    ScrubDescription,
    TopicDescription,
)
from klamm.errors import KlammError
from klamm.model import TopicPartition
from klamm_cli.status.facts import ClusterFacts, GroupLag, OpenTransaction
from klamm_cli.status.group_positions import read_positions
from klamm_cli.status.unread_records import LogBounds, lost_by_partition, total_lag

if TYPE_CHECKING:
    from klamm import Admin
    from klamm.admin import ClusterDescription, GroupListing, TransactionDescription

T = TypeVar("T")

GROUPS_MAX: Final = 500
"""The largest number of groups whose lag is fetched. Each group takes a request of its own."""
OPEN_MAX: Final = 500
"""The largest number of open transactions that are described. Each takes a request of its own."""
HANGING_PARTITIONS_MAX: Final = 5_000
"""The largest number of partitions that are searched for hanging transactions. For more, `klamm transactions
find-hanging` searches."""
_TOPICS_A_REQUEST: Final = 500
_MIN_ISR: Final = "min.insync.replicas"
_UNCLEAN: Final = "unclean.leader.election.enable"
_OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")


def gather(admin: Admin, timeout_ms: int) -> ClusterFacts:
    """Returns the facts about a cluster. Waits for each part for `timeout_ms`. Raises KlammError if no server can
    describe the cluster."""
    asking = _Asking(admin, timeout_ms, {})
    facts = ClusterFacts(cluster=admin.describe_cluster(timeout_ms=timeout_ms))
    facts = replace(facts, quorum=asking.part("quorum", lambda: admin.describe_quorum(timeout_ms=timeout_ms)))
    topics = None
    if facts.quorum is None:
        asking.unknown["topics"] = "no controller decides which brokers lead"
    else:
        topics = asking.part("topics", lambda: admin.list_topics(include_internal=True, timeout_ms=timeout_ms))
    facts = replace(
        facts, topics=topics, log_dirs=asking.log_dirs(facts.cluster), damaged=asking.damaged(facts.cluster)
    )
    if topics is not None:
        configs = asking.part("configs of topics", lambda: asking.configs(topics)) or {}
        facts = replace(
            facts,
            min_isr={name: int(values[_MIN_ISR]) for name, values in configs.items()},
            unclean=tuple(name for name, values in configs.items() if values[_UNCLEAN] == "true"),
        )
    listed = asking.part("groups", lambda: admin.list_groups(timeout_ms=timeout_ms))
    if listed is not None and topics is not None:
        groups = asking.part("lag", lambda: asking.lags(list(listed.values())[:GROUPS_MAX], topics))
        facts = replace(facts, groups=groups, groups_left_out=max(0, len(listed) - GROUPS_MAX))
    facts = replace(facts, open_transactions=asking.part("transactions", asking.open_transactions))
    led = _led(topics or {})
    if 0 < len(led) <= HANGING_PARTITIONS_MAX:
        hanging = asking.part(
            "hanging transactions", lambda: admin.find_hanging_transactions(led, timeout_ms=timeout_ms)
        )
        facts = replace(facts, hanging=hanging)
    return replace(facts, unknown=asking.unknown)


@dataclass(frozen=True, slots=True)
class _Asking:
    admin: Admin
    timeout_ms: int
    unknown: dict[str, str]

    def part(self, name: str, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except KlammError as error:
            self.unknown[name] = str(error)
            return None

    def log_dirs(self, cluster: ClusterDescription) -> Mapping[int, tuple[LogDirDescription, ...]]:
        """Returns the log directories of each live broker. Each broker gets its own request, so one that does not
        answer does not hide the others."""
        found = {}
        for broker in cluster.brokers:
            if not broker.fenced:
                wanted = [broker.node_id]
                answer = self.part(
                    f"log directories of broker {broker.node_id}",
                    lambda wanted=wanted: self.admin.describe_log_dirs(wanted, timeout_ms=self.timeout_ms),  # type: ignore[misc]
                )
                found.update(answer or {})
        return found

    def damaged(self, cluster: ClusterDescription) -> Mapping[int, tuple[ScrubDescription, ...]]:
        """Asks each broker for its damaged segments, as `log_dirs` does."""
        found = {}
        for broker in cluster.brokers:
            if not broker.fenced:
                wanted = [broker.node_id]
                answer = self.part(
                    f"damaged segments of broker {broker.node_id}",
                    lambda wanted=wanted: self.admin.describe_scrubs(  # type: ignore[misc]
                        broker_ids=wanted, unrepaired_only=True, timeout_ms=self.timeout_ms
                    ),
                )
                found.update(answer or {})
        return found

    def configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Returns min.insync.replicas and unclean.leader.election.enable of each topic, by topic and setting."""
        found = {}
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in topics]
        for start in range(0, len(resources), _TOPICS_A_REQUEST):
            some = resources[start : start + _TOPICS_A_REQUEST]
            described = self.admin.describe_configs(some, names=[_MIN_ISR, _UNCLEAN], timeout_ms=self.timeout_ms)
            for resource, entries in described.items():
                found[resource.name] = {name: entry.value for name, entry in entries.items()}
        return found

    def lags(self, groups: Iterable[GroupListing], topics: Mapping[str, TopicDescription]) -> list[GroupLag]:
        """Returns the lag of each group. Groups that lost records come first, then those with the most lag."""
        listed = {group.group_id: group for group in groups}
        found = read_positions(self.admin, listed, set(_led(topics)), timeout_ms=self.timeout_ms)
        lags = [group_lag(listed[group_id], offsets, found.bounds) for group_id, offsets in found.committed.items()]
        return sorted(lags, key=lambda each: (-each.lost_count, -each.lag, each.group_id))

    def open_transactions(self) -> list[OpenTransaction]:
        """Returns the open transactions, the oldest first."""
        listed = self.admin.list_transactions(states=_OPEN_STATES, timeout_ms=self.timeout_ms)
        described = self.admin.describe_transactions(list(listed)[:OPEN_MAX], timeout_ms=self.timeout_ms)
        now_ms = round(time.time() * 1000)
        found = [_open(one, now_ms) for one in described.values() if one.start_time_ms >= 0]
        return sorted(found, key=lambda each: -each.open_ms)


def group_lag(
    group: GroupListing, committed: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, LogBounds]
) -> GroupLag:
    """Returns the lag of one group. Partitions whose bounds are not known do not count."""
    return GroupLag(
        group_id=group.group_id,
        type=group.type,
        state=group.state,
        lag=total_lag(committed, bounds),
        partitions=len(committed.keys() & bounds.keys()),
        lost=lost_by_partition(committed, bounds),
    )


def _open(one: TransactionDescription, now_ms: int) -> OpenTransaction:
    return OpenTransaction(
        transactional_id=one.transactional_id,
        state=one.state,
        open_ms=max(0, now_ms - one.start_time_ms),
        timeout_ms=one.transaction_timeout_ms,
        is_prepared=one.prepared_ms > 0,
    )


def _led(topics: Mapping[str, TopicDescription]) -> list[TopicPartition]:
    return [
        TopicPartition(name, each.partition)
        for name, topic in topics.items()
        for each in topic.partitions
        if each.leader >= 0
    ]
