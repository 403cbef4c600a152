"""The shards of `__consumer_offsets`: their logs at the brokers, and the coordinators that own or owned them."""

from __future__ import annotations

from dataclasses import dataclass, field

from klamm.model import TopicPartition
from klamm_coordinator.offsets.lowest_offsets import LowestOffsets, TopicHold
from klamm_coordinator.offsets.store import ShardOffsets
from klamm_coordinator.records.schemas import NO_TIMESTAMP, OffsetCommitValue
from klamm_coordinator.runtime.accounts import Accounts
from klamm_server.runtime.byte_shares import unbounded

PARTITION = TopicPartition("t", 0)


@dataclass(slots=True)
class ShardLog:
    """The log of a shard. It refuses the writes of owners before the last one that has claimed it."""

    number: int
    owner_epoch: int = 0
    records: list[tuple[str, int | None]] = field(default_factory=list)
    """The commits in order: group and offset, None for a deleted group."""

    def append(self, epoch: int, record: tuple[str, int | None] | None) -> bool:
        """Appends a record, or a claim (None). Returns False if a later owner has claimed the log."""
        if epoch < self.owner_epoch:
            return False
        self.owner_epoch = epoch
        if record is not None:
            self.records.append(record)
        return True


class OwnedShard:
    """A shard as its owner sees it. The owner may be replaced without knowing it."""

    def __init__(self, log: ShardLog, epoch: int) -> None:
        self._log = log
        self._epoch = epoch
        self.number = log.number
        self._offsets = ShardOffsets(Accounts(unbounded()))
        self.is_loaded = log.append(epoch, None)
        for group_id, offset in log.records:
            self._replay(group_id, offset)

    def commit(self, group_id: str, offset: int | None) -> bool:
        """Stores an offset, or deletes a group. Returns False if another coordinator owns the shard."""
        if not self._log.append(self._epoch, (group_id, offset)):
            self.is_loaded = False
            return False
        self._replay(group_id, offset)
        return True

    def confirm(self) -> bool:
        """Returns True if no later owner has claimed the log."""
        self.is_loaded = self.is_loaded and self._log.append(self._epoch, None)
        return self.is_loaded

    def search(self, hold: TopicHold, named: list[str]) -> LowestOffsets:
        """Returns the lowest offset of the groups in this shard."""
        found = LowestOffsets([hold])
        for group_id in dict.fromkeys([*named, *(sorted(self._offsets.group_ids()) if hold.all_groups else ())]):
            found.add(group_id, self._offsets.of_group(group_id))
        return found

    def _replay(self, group_id: str, offset: int | None) -> None:
        value = None
        if offset is not None:
            value = OffsetCommitValue(
                offset=offset, leader_epoch=-1, metadata="", commit_timestamp_ms=0, expire_timestamp_ms=NO_TIMESTAMP
            )
        self._offsets.replay(group_id, PARTITION, value)
