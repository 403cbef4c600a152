"""Takes samples of a cluster. The cost of a sample is bounded for a cluster of any size. Partitions and groups beyond
the bounds are left out, and the sample says how many."""

from __future__ import annotations

import http.client
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from klamm.admin.types import ClusterDescription, TopicDescription
from klamm.errors import KlammError
from klamm.model import LATEST_TIMESTAMP, TopicPartition
from klamm_cli.top.metrics_text import read_metrics
from klamm_cli.top.sample import Counters, GroupPositions, Sample

if TYPE_CHECKING:
    from klamm import Admin

PARTITIONS_MAX: Final = 2_000
"""The largest number of partitions to watch. Each sample sends a request to each of their leaders."""
GROUPS_MAX: Final = 50
"""The largest number of groups to watch. Each sample sends a request for each of them."""
_CATALOG_S: Final = 15.0
"""The time after which the lists of topics, leaders and groups are read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The topics, groups and servers to watch."""

    topics: str | None
    """A pattern like a shell's for file names (`orders-*`), or None for all topics but internal ones."""
    groups: str | None
    endpoints: Sequence[tuple[str, int]]
    timeout_s: float


def choose_topics(topics: Mapping[str, TopicDescription], pattern: str | None) -> tuple[dict[TopicPartition, int], str]:
    """Returns the leader of each partition to watch, and a text about the topics left out. Chooses whole topics, by
    name. Pure."""
    matching = {
        name: topic
        for name, topic in sorted(topics.items())
        if (fnmatchcase(name, pattern) if pattern else not topic.internal)
    }
    chosen: dict[TopicPartition, int] = {}
    left_out = 0
    for name, topic in matching.items():
        led = {
            TopicPartition(name, partition.partition): partition.leader
            for partition in topic.partitions
            if partition.leader >= 0
        }
        if len(chosen) + len(led) > PARTITIONS_MAX:
            left_out += 1
            continue
        chosen.update(led)
    said = f"{left_out} of {len(matching)} topics are not watched: name some with --topics" if left_out else ""
    return chosen, said


def choose_groups(groups: Mapping[str, str], pattern: str | None) -> tuple[dict[str, str], str]:
    """Returns the groups to watch with their states, and a text about the other groups. Empty groups come last.
    Pure."""
    matching = {name: state for name, state in groups.items() if pattern is None or fnmatchcase(name, pattern)}
    names = sorted(matching, key=lambda name: (matching[name] == "Empty", name))
    left_out = len(names) - GROUPS_MAX
    said = f"{left_out} of {len(names)} groups are not watched: name some with --groups" if left_out > 0 else ""
    return {name: matching[name] for name in names[:GROUPS_MAX]}, said


def health_of(cluster: ClusterDescription, topics: Mapping[str, TopicDescription]) -> tuple[str, bool]:
    """Returns a line about the brokers and partitions of the cluster, and whether all of them are well. Pure."""
    fenced = sorted(broker.node_id for broker in cluster.brokers if broker.fenced)
    partitions = [partition for topic in topics.values() for partition in topic.partitions]
    offline = sum(partition.leader < 0 for partition in partitions)
    under_replicated = sum(len(partition.isr) < len(partition.replicas) for partition in partitions)
    missing = f", missing {', '.join(map(str, fenced))}" if fenced else ""
    text = f"brokers {len(cluster.brokers) - len(fenced)} of {len(cluster.brokers)}{missing}"
    text += f"; partitions {len(partitions)}: {offline} without a leader, {under_replicated} under-replicated"
    return text, not (fenced or offline or under_replicated)


class Watcher:
    """Takes samples of one cluster."""

    def __init__(self, admin: Admin, scope: Scope) -> None:
        self._admin = admin
        self._scope = scope
        self._timeout_ms = round(scope.timeout_s * 1000)
        self._catalog_s: float | None = None
        self._leaders: dict[TopicPartition, int] = {}
        self._groups: dict[str, str] = {}
        self._left_out: tuple[str, ...] = ()
        self._health = ("", True)

    def sample(self) -> Sample:
        """Returns a sample. Raises KlammError if it cannot get the offsets."""
        try:
            self._refresh_catalog()
            ends = self._admin.list_offsets(dict.fromkeys(self._leaders, LATEST_TIMESTAMP), timeout_ms=self._timeout_ms)
        except KlammError:
            self._catalog_s = None  # A topic may have been deleted, so read the catalog again.
            raise
        silent: list[str] = []
        return Sample(
            at_s=time.monotonic(),
            ends={tp: end.offset for tp, end in ends.items()},
            leaders=dict(self._leaders),
            log_bytes=self._log_bytes(silent),
            groups=self._positions(silent),
            metrics=self._metrics(silent),
            health=self._health[0],
            is_healthy=self._health[1],
            left_out="; ".join(text for text in (*self._left_out, *silent) if text),
        )

    def _refresh_catalog(self) -> None:
        now_s = time.monotonic()
        if self._catalog_s is not None and now_s - self._catalog_s < _CATALOG_S:
            return
        topics = self._admin.list_topics(include_internal=True, timeout_ms=self._timeout_ms)
        self._leaders, topics_left_out = choose_topics(topics, self._scope.topics)
        self._health = health_of(self._admin.describe_cluster(timeout_ms=self._timeout_ms), topics)
        try:
            listed = self._admin.list_groups(timeout_ms=self._timeout_ms)
            states = {group.group_id: group.state for group in listed.values()}
            self._groups, groups_left_out = choose_groups(states, self._scope.groups)
        except KlammError as error:
            self._groups, groups_left_out = {}, f"groups: {error}"
        self._left_out = (topics_left_out, groups_left_out)
        self._catalog_s = now_s

    def _log_bytes(self, silent: list[str]) -> dict[TopicPartition, int]:
        names = sorted({tp.topic for tp in self._leaders})
        if not names:
            return {}
        try:
            described = self._admin.describe_log_dirs(topics=names, timeout_ms=self._timeout_ms)
        except KlammError as error:
            silent.append(f"bytes: {error}")
            return {}
        return {
            replica.tp: replica.size_bytes
            for broker_id, directories in described.items()
            for directory in directories
            for replica in directory.replicas
            if not replica.is_future and self._leaders.get(replica.tp) == broker_id
        }

    def _positions(self, silent: list[str]) -> dict[str, GroupPositions]:
        found: dict[str, GroupPositions] = {}
        for name, state in self._groups.items():
            try:
                described = self._admin.describe_group_lag([name], timeout_ms=self._timeout_ms)[name]
            except KlammError as error:
                # One error is enough for one sample, because each further request may time out. The next sample asks
                # for all groups again.
                silent.append(f"group {name}: {error}")
                break
            watched = [partition for partition in described.partitions if partition.tp in self._leaders]
            committed = {
                partition.tp: partition.committed_offset
                for partition in watched
                if partition.committed_offset is not None
            }
            if committed:
                found[name] = GroupPositions(
                    state=state,
                    committed=committed,
                    lag=sum(partition.lag or 0 for partition in watched),
                    behind_ms=max(partition.behind_ms or 0 for partition in watched),
                )
        return found

    def _metrics(self, silent: list[str]) -> dict[str, Counters]:
        found = {}
        for host, port in self._scope.endpoints:
            try:
                found[f"{host}:{port}"] = read_metrics(host, port, self._scope.timeout_s)
            except (OSError, http.client.HTTPException) as error:
                silent.append(f"metrics of {host}:{port}: {error}")
        return found
