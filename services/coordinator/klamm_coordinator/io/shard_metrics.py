"""The metrics of single groups, transactions and ledgers.

The metrics endpoint's thread reads them when they are scraped. It changes nothing, and a concurrent change may be
visible or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from klamm.ledger_ids import LedgerId
from klamm_coordinator.group_shard.rules import GroupRules
from klamm_coordinator.lag.group_lag import PartitionLag
from klamm_coordinator.ledger.ledger import BatchLedger
from klamm_coordinator.transaction_shard.rules import TransactionRules
from klamm_server.metrics.instruments import Reading, Readings, gauge

_GROUPS = Readings(
    "klamm_coordinator_groups",
    "Groups in the shards that this coordinator serves (Kafka's group-count).",
    ("protocol", "state"),
)
_MEMBERS = Readings(
    "klamm_coordinator_group_members", "Members of a group. 0 if the group only stores offsets.", ("group",)
)
_OFFSET = Readings(
    "klamm_coordinator_group_offset",
    "Committed offset of a group, which is the next record to read.",
    ("group", "topic", "partition"),
)
_PARTITION_OF_GROUP: Final = ("group", "topic", "partition")
_BEHIND = Readings(
    "klamm_coordinator_group_behind_seconds",
    "Age of the next record that a group has to read. 0 if it has read everything.",
    _PARTITION_OF_GROUP,
)
_UNREAD = Readings(
    "klamm_coordinator_group_unread_records",
    "Records that a group has to read, without markers and records of aborted transactions.",
    _PARTITION_OF_GROUP,
)
_LOST = Readings(
    "klamm_coordinator_group_lost_records",
    "Records that were deleted before a group read them, if there are any.",
    _PARTITION_OF_GROUP,
)
_UNTIL_DELETION = Readings(
    "klamm_coordinator_group_unread_deletion_seconds",
    "Time until retention is expected to delete the next record that a group has to read, if it is.",
    _PARTITION_OF_GROUP,
)
_TRANSACTIONS = Readings("klamm_coordinator_transactions", "Transactional ids by Kafka's names of states.", ("state",))
_OLDEST = gauge("klamm_coordinator_oldest_transaction_seconds", "Time since the earliest open transaction began.")
_LEDGER: Final = ("sink", "query")
_COMMITTED_BATCH = Readings(
    "klamm_coordinator_ledger_committed_batch", "Number of the last batch of a Spark query that was committed.", _LEDGER
)
_OPEN_PARTS = Readings(
    "klamm_coordinator_ledger_open_parts",
    "Tasks of a Spark query whose output waits for the decision about its batch.",
    _LEDGER,
)
_LEDGER_IDLE = Readings(
    "klamm_coordinator_ledger_idle_seconds", "Time since the ledger of a Spark query changed.", _LEDGER
)


def watch_groups(
    shards: Callable[[], Sequence[GroupRules]],
    lags: Callable[[], Iterator[tuple[str, PartitionLag]]],
    wall_ms: Callable[[], int],
) -> None:
    """Reports on the groups of `shards()`. `lags` returns what each group has to read in each partition."""
    _GROUPS.set_function(lambda: _groups(shards()))
    _MEMBERS.set_function(lambda: [reading for shard in shards() for reading in _members(shard)])
    _OFFSET.set_function(lambda: (reading for shard in shards() for reading in _offsets(shard)))

    def of_lags(value: Callable[[PartitionLag], float | None]) -> Callable[[], Iterator[Reading]]:
        return lambda: (
            ((group_id, *lag.partition), number) for group_id, lag in lags() if (number := value(lag)) is not None
        )

    _BEHIND.set_function(of_lags(lambda lag: None if lag.behind_ms is None else lag.behind_ms / 1000))
    _UNREAD.set_function(of_lags(lambda lag: lag.lag))
    _LOST.set_function(of_lags(lambda lag: lag.lost_count or None))
    _UNTIL_DELETION.set_function(of_lags(lambda lag: _seconds_until(lag.unread.next_deletion_ms, wall_ms())))


def watch_transactions(shards: Callable[[], Sequence[TransactionRules]], wall_ms: Callable[[], int]) -> None:
    """Reports on the transactions and ledgers of `shards()`."""
    _TRANSACTIONS.set_function(lambda: _states(shards()))
    _OLDEST.set_function(lambda: _oldest_seconds(shards(), wall_ms()))
    _COMMITTED_BATCH.set_function(lambda: [(name, ledger.committed_batch_id) for _, name, ledger in _ledgers(shards())])
    _OPEN_PARTS.set_function(
        lambda: [(name, len(shard.ledgers.open_parts(name))) for shard, name, _ in _ledgers(shards())]
    )
    _LEDGER_IDLE.set_function(
        lambda: [(name, max(0, wall_ms() - ledger.last_update_ms) / 1000) for _, name, ledger in _ledgers(shards())]
    )


def _seconds_until(time_ms: int | None, now_ms: int) -> float | None:
    return None if time_ms is None else max(0, time_ms - now_ms) / 1000


def _groups(shards: Sequence[GroupRules]) -> Iterator[Reading]:
    counts = Counter((group.group_type, group.state) for shard in shards for group in shard.list_groups())
    yield from counts.items()


def _members(shard: GroupRules) -> Iterator[Reading]:
    for group in list(shard.classic.groups.values()):
        yield (group.group_id,), len(group.members)
    for consumers in list(shard.state.consumer_groups.values()):
        yield (consumers.group_id,), len(consumers.members)


def _offsets(shard: GroupRules) -> Iterator[Reading]:
    """Yields the committed offsets of all groups. Skips negative offsets, which have no lag: their groups begin where
    the members' reset policy says."""
    for group_id, (topic, partition), value in shard.state.offsets.committed():
        if value.offset >= 0:
            yield (group_id, topic, partition), value.offset


def _states(shards: Sequence[TransactionRules]) -> Iterator[Reading]:
    counts = Counter(value.state for shard in shards for value in list(shard.ids.values.values()))
    for state, count in counts.items():
        yield (state.text,), count


def _oldest_seconds(shards: Sequence[TransactionRules], now_ms: int) -> float:
    begun_ms = [begun for shard in shards if (begun := shard.ids.oldest_start_ms) is not None]
    return max(0, now_ms - min(begun_ms, default=now_ms)) / 1000


def _ledgers(shards: Sequence[TransactionRules]) -> Iterator[tuple[TransactionRules, LedgerId, BatchLedger]]:
    for shard in shards:
        for ledger_id, ledger in list(shard.ledgers.values.items()):
            yield shard, ledger_id, ledger
