"""Asks a cluster for its state. Parts that do not answer are named, because people ask when half a cluster is down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from klamm.admin.types import (
    ConfigResource,
    ConfigResourceType,
    LogDirDescription,
    ScrubDescription,
    TopicDescription,
)
from klamm.errors import KlammError
from klamm.model import TopicPartition
from klamm_cli.status.facts import ClusterFacts, OpenTransaction
from klamm_cli.status.group_lag import GroupLag, describe_each, group_lag

if TYPE_CHECKING:
    from klamm import Admin
    from klamm.admin import GroupListing, TransactionDescription

T = TypeVar("T")

GROUPS_MAX: Final = 500
"""The largest number of groups whose lag is fetched. Each group takes a request of its own."""
OPEN_MAX: Final = 500
"""The largest number of open transactions that are described. Each takes a request of its own."""
HANGING_PARTITIONS_MAX: Final = 5_000
"""The largest number of partitions that are searched for hanging transactions. For more, `klamm transactions
find-hanging` searches."""
_TOPICS_A_REQUEST: Final = 500
_THREADS: Final = 32
"""The largest number of questions at a time."""
_MIN_ISR: Final = "min.insync.replicas"
_UNCLEAN: Final = "unclean.leader.election.enable"
_OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")


def gather(admin: Admin, deadline_s: float) -> ClusterFacts:
    """Returns the facts about a cluster, at the latest at `deadline_s` on the monotonic clock. Asks all servers at the
    same time, so that a server that does not answer does not delay the others. Raises KlammError if no server can
    describe the cluster."""
    asking = _Asking(admin, deadline_s, {})
    facts = ClusterFacts(cluster=admin.describe_cluster(timeout_ms=asking.timeout_ms))
    facts = replace(facts, quorum=asking.part("quorum", lambda: admin.describe_quorum(timeout_ms=asking.timeout_ms)))
    topics: Mapping[str, TopicDescription] | None = None
    if facts.quorum is None:
        asking.unknown["topics"] = "no controller decides which brokers lead"
    else:
        topics = asking.part("topics", lambda: admin.list_topics(include_internal=True, timeout_ms=asking.timeout_ms))
    live = [broker.node_id for broker in facts.cluster.brokers if not broker.fenced]
    with _Parts(asking) as parts:
        log_dirs = [parts.begin(_Asking.log_dirs, broker_id) for broker_id in live]
        damaged = [parts.begin(_Asking.damaged, broker_id) for broker_id in live]
        configs = parts.begin(_Asking.configs_if_known, topics)
        groups = parts.begin(_Asking.groups)
        transactions = parts.begin(_Asking.open_transactions_if_known)
        hanging = parts.begin(_Asking.hanging, topics)
    described, listed = configs.result(), groups.result()
    facts = replace(
        facts,
        topics=topics,
        log_dirs=_joined(log_dirs),
        damaged=_joined(damaged),
        min_isr={name: int(values[_MIN_ISR]) for name, values in described.items()},
        unclean=tuple(name for name, values in described.items() if values[_UNCLEAN] == "true"),
        open_transactions=transactions.result(),
        unknown=asking.unknown,
    )
    if listed is not None:
        facts = replace(facts, groups=listed[0], groups_left_out=listed[1])
    if (found := hanging.result()) is not None:
        facts = replace(facts, hanging=found)
    return facts


def _joined(answers: Iterable[Future[Mapping[int, tuple[T, ...]]]]) -> dict[int, tuple[T, ...]]:
    return {broker_id: answer for future in answers for broker_id, answer in future.result().items()}


class _Parts:
    """Parts of the facts that are asked for at the same time. At the end of the block, all have been answered or are
    known to be unknown."""

    def __init__(self, asking: _Asking) -> None:
        self._asking = asking
        self._unknown: list[dict[str, str]] = []
        self._pool = ThreadPoolExecutor(_THREADS)

    def begin(self, ask: Callable[..., T], *arguments: object) -> Future[T]:
        """Calls `ask` in a thread, with an _Asking that notes only what this part does not know."""
        asking = replace(self._asking, unknown={})
        self._unknown.append(asking.unknown)
        return self._pool.submit(ask, asking, *arguments)

    def __enter__(self) -> _Parts:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        for unknown in self._unknown:
            self._asking.unknown.update(unknown)


@dataclass(frozen=True, slots=True)
class _Asking:
    admin: Admin
    deadline_s: float
    unknown: dict[str, str]

    @property
    def timeout_ms(self) -> int:
        """The time that is left for an answer."""
        return max(1, round((self.deadline_s - time.monotonic()) * 1000))

    def part(self, name: str, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except KlammError as error:
            self.unknown[name] = str(error)
            return None

    def log_dirs(self, broker_id: int) -> Mapping[int, tuple[LogDirDescription, ...]]:
        """Returns the log directories of a live broker. Each broker gets its own request, so one that does not answer
        does not hide the others."""
        answer = self.part(
            f"log directories of broker {broker_id}",
            lambda: self.admin.describe_log_dirs([broker_id], timeout_ms=self.timeout_ms),
        )
        return answer or {}

    def damaged(self, broker_id: int) -> Mapping[int, tuple[ScrubDescription, ...]]:
        """Returns the damaged segments of a live broker, as `log_dirs` does."""
        answer = self.part(
            f"damaged segments of broker {broker_id}",
            lambda: self.admin.describe_scrubs(
                broker_ids=[broker_id], unrepaired_only=True, timeout_ms=self.timeout_ms
            ),
        )
        return answer or {}

    def configs_if_known(self, topics: Mapping[str, TopicDescription] | None) -> dict[str, dict[str, str]]:
        if topics is None:
            return {}
        return self.part("configs of topics", lambda: self.configs(topics)) or {}

    def groups(self) -> tuple[list[GroupLag] | None, int] | None:
        """Returns the lag of groups, and how many groups were left out."""
        listed = self.part("groups", lambda: self.admin.list_groups(timeout_ms=self.timeout_ms))
        if listed is None:
            return None
        groups = self.part("lag", lambda: self.lags(list(listed.values())[:GROUPS_MAX]))
        return groups, max(0, len(listed) - GROUPS_MAX)

    def open_transactions_if_known(self) -> list[OpenTransaction] | None:
        return self.part("transactions", self.open_transactions)

    def hanging(self, topics: Mapping[str, TopicDescription] | None) -> Any:
        led = _led(topics or {})
        if not 0 < len(led) <= HANGING_PARTITIONS_MAX:
            return None
        return self.part(
            "hanging transactions", lambda: self.admin.find_hanging_transactions(led, timeout_ms=self.timeout_ms)
        )

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

    def lags(self, groups: Iterable[GroupListing]) -> list[GroupLag]:
        """Returns the lag of each group. Groups that lost records come first, then those with the most lag."""
        listed = {group.group_id: group for group in groups}
        described = describe_each(self.admin, listed, timeout_ms=lambda: self.timeout_ms)
        lags = [group_lag(listed[group.group_id], group) for group in described]
        return sorted(lags, key=lambda lag: (-lag.lost_count, -lag.lag, lag.group_id))

    def open_transactions(self) -> list[OpenTransaction]:
        """Returns the open transactions, the oldest first."""
        listed = self.admin.list_transactions(states=_OPEN_STATES, timeout_ms=self.timeout_ms)
        described = self.admin.describe_transactions(list(listed)[:OPEN_MAX], timeout_ms=self.timeout_ms)
        now_ms = round(time.time() * 1000)
        found = [_open(transaction, now_ms) for transaction in described.values() if transaction.start_time_ms >= 0]
        return sorted(found, key=lambda transaction: -transaction.open_ms)


def _open(transaction: TransactionDescription, now_ms: int) -> OpenTransaction:
    return OpenTransaction(
        transactional_id=transaction.transactional_id,
        state=transaction.state,
        open_ms=max(0, now_ms - transaction.start_time_ms),
        timeout_ms=transaction.transaction_timeout_ms,
        is_prepared=transaction.prepared_ms > 0,
    )


def _led(topics: Mapping[str, TopicDescription]) -> list[TopicPartition]:
    return [
        TopicPartition(name, partition.partition)
        for name, topic in topics.items()
        for partition in topic.partitions
        if partition.leader >= 0
    ]
