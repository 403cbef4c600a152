"""The shards of `__consumer_offsets`: their logs at the brokers, and the coordinators that own or owned them.

The rules of a shard are the code under test. The log decides one write after the other, each after a message to the
brokers and back. So a coordinator may crash between two writes of one request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from klamm.model import TopicPartition
from klamm_coordinator.group_shard.events import ConfirmOwner, ConfirmOwnerReply, HoldsChanged
from klamm_coordinator.group_shard.rules import GroupRules
from klamm_coordinator.groups.settings import GroupSettings
from klamm_coordinator.groups.topics import FixedTopics, TopicInfo
from klamm_coordinator.offsets.lowest_offsets import LowestOffsets, TopicHold
from klamm_coordinator.offsets.messages import CommitOffset, CommitOffsets, DeleteGroups
from klamm_coordinator.records.schemas import GroupRecord
from klamm_coordinator.runtime.effects import ShardEffects
from klamm_coordinator.runtime.events import TimePassed, WriteAppended
from klamm_coordinator.runtime.log_write import LogWrite
from klamm_coordinator.runtime.shard_runtime import ShardRuntime
from klamm_coordinator.runtime.timers import Now

if TYPE_CHECKING:
    from tests.sim.holdsim.servers import Coordinator

PARTITION: Final = TopicPartition("t", 0)
ELSEWHERE: Final = TopicPartition("elsewhere", 0)
"""A partition that no hold is about."""
TOPIC_ID: Final = bytes(range(16))
SETTINGS: Final = GroupSettings(offsets_retention_check_interval_ms=500)


def topics_with(groups: tuple[str, ...]) -> FixedTopics:
    """Returns the cluster's topics, of which one names these groups in `retention.hold.groups`."""
    by_name = {PARTITION.topic: TopicInfo(TOPIC_ID, 1), ELSEWHERE.topic: TopicInfo(bytes(16), 1)}
    return FixedTopics(0, by_name, holds={group_id: {PARTITION.topic: TOPIC_ID} for group_id in groups})


@dataclass(slots=True)
class ShardLog:
    """The log of a shard. It refuses the writes of owners before the last one that has claimed it."""

    number: int
    on_append: Callable[[tuple[GroupRecord, ...], bool], None]
    """Gets the records of each write, and True if they delete a group by a user's request."""
    owner_epoch: int = 0
    records: list[GroupRecord] = field(default_factory=list)

    def append(self, epoch: int, records: tuple[GroupRecord, ...], *, is_deletion: bool = False) -> bool:
        """Appends records. Returns False if a later owner has claimed the log."""
        if epoch < self.owner_epoch:
            return False
        self.owner_epoch = epoch
        self.records += records
        self.on_append(records, is_deletion)
        return True


class OwnedShard:
    """A shard as its owner sees it. The owner may be replaced without knowing it."""

    def __init__(self, coordinator: Coordinator, log: ShardLog, epoch: int) -> None:
        self._coordinator = coordinator
        self._log = log
        self._epoch = epoch
        self.number = log.number
        self.rules = GroupRules(SETTINGS, topics=lambda: topics_with(coordinator.image.groups))
        self._runtime = ShardRuntime(self.rules, SETTINGS, coordinator.cluster.rng)
        self._writes: deque[tuple[LogWrite[GroupRecord], bool]] = deque()
        """The writes that the log has not decided, each with True if it deletes a group by a user's request."""
        self._is_sending = False
        self._confirming: dict[int, Callable[[bool], None]] = {}
        self.is_loaded = log.append(epoch, ())
        for record in log.records:
            self.rules.state.replay(record)
        self._take(self._runtime.start(self._now()))

    def commit(self, group_id: str, partition: TopicPartition, offset: int) -> None:
        """Begins to store an offset."""
        wanted = CommitOffset(partition=partition, offset=offset, leader_epoch=-1, metadata="")
        request = CommitOffsets(
            reply_id=self._coordinator.cluster.next_number(),
            group_id=group_id,
            generation_id=-1,
            member_id="",
            instance_id=None,
            offsets=(wanted,),
        )
        self._step(request)

    def delete(self, group_id: str) -> None:
        """Begins to delete a group by a user's request."""
        reply_id = self._coordinator.cluster.next_number()
        self._step(DeleteGroups(reply_id=reply_id, group_ids=(group_id,)), is_deletion=True)

    def on_holds_changed(self) -> None:
        self._step(HoldsChanged())

    def pass_time(self) -> None:
        """Handles the timers that are due."""
        self._step(TimePassed())

    def confirm(self, done: Callable[[bool], None]) -> None:
        """Calls `done` with True if no later owner has claimed the log."""
        reply_id = self._coordinator.cluster.next_number()
        self._confirming[reply_id] = done
        self._step(ConfirmOwner(reply_id=reply_id))

    def search(self, hold: TopicHold, named: list[str]) -> LowestOffsets:
        """Returns the lowest offset of the groups in this shard."""
        found = LowestOffsets([hold])
        offsets = self.rules.state.offsets
        for group_id in dict.fromkeys([*named, *(sorted(offsets.group_ids()) if hold.all_groups else ())]):
            found.add(group_id, offsets.of_group(group_id), self.rules.releases.of_group(group_id))
        return found

    def close(self) -> None:
        """Drops the shard. A write that is on its way may still be appended."""
        self.is_loaded = False
        for done in self._confirming.values():
            done(False)
        self._confirming.clear()

    def _now(self) -> Now:
        cluster = self._coordinator.cluster
        return Now(cluster.now_ms, cluster.now_ms + cluster.wall_skew_ms)

    def _step(self, event: Any, *, is_deletion: bool = False) -> None:
        self._take(self._runtime.step(event, self._now()), is_deletion=is_deletion)

    def _take(self, effects: ShardEffects[Any], *, is_deletion: bool = False) -> None:
        for reply_id, reply in effects.replies:
            if isinstance(reply, ConfirmOwnerReply) and (done := self._confirming.pop(reply_id, None)) is not None:
                done(not reply.error)
        self._writes.extend((write, is_deletion) for write in effects.writes)
        if self._writes and not self._is_sending:
            self._is_sending = True
            self._coordinator.cluster.to_log(self._append)

    def _append(self) -> None:
        """Appends the oldest write at the brokers."""
        write, is_deletion = self._writes[0]
        is_appended = self._log.append(self._epoch, write.records, is_deletion=is_deletion)
        self._coordinator.cluster.after_hop(self._coordinator, lambda: self._decided(write, is_appended))

    def _decided(self, write: LogWrite[GroupRecord], is_appended: bool) -> None:
        if not self.is_loaded:
            return
        if not is_appended:
            self.close()
            return
        del self._writes[0]
        self._is_sending = False
        self._step(WriteAppended(write_id=write.write_id))
