"""The simulated cluster, its faults, and the groups that read and commit."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Final

from klamm.model import TopicPartition, coordinator_shard
from klamm_broker.log.cleaning.hold_groups import ALL_GROUPS
from klamm_broker.log.log_config import LogConfig
from klamm_coordinator.records.schemas import GroupRecord, OffsetCommitKey, OffsetCommitValue
from tests.sim.holdsim.checks import DELETED, Checks
from tests.sim.holdsim.options import Options
from tests.sim.holdsim.servers import CHECK_INTERVAL_MS, SHARD_COUNT, Broker, Coordinator, Metadata, Server
from tests.sim.holdsim.shards import ELSEWHERE, PARTITION, OwnedShard, ShardLog
from tests.sim.kit.cluster import SimCluster
from tests.sim.kit.network import Links
from tests.sim.kit.world import MS, World

BROKER_COUNT: Final = 3
COORDINATOR_COUNT: Final = 2
FAULTY_MS: Final = 40_000
PRODUCE_INTERVAL_MS: Final = 100
FOLLOW_INTERVAL_MS: Final = 150
FROZEN_MS: Final = 3_000
CRASHED_MS: Final = 2_000
MESSAGE_MAX_MS: Final = 5_000
"""The longest time that a message takes."""
OFFSETS_RETENTION_MS: Final = 7 * 24 * 3_600_000
QUIET_MS: Final = FAULTY_MS + MESSAGE_MAX_MS
"""The time at which all messages have arrived that were on their way when the faults ended."""
LAST_MOVE_MS: Final = QUIET_MS + 4_000
"""The time at which the shards move once more. Records are produced until then, so that the next owner has to know
which groups were deleted."""
HEALED_MS: Final = 25_000
"""The time without faults. It is longer than retention and messages, and several checks longer."""


class Cluster(SimCluster):
    """A partition with three replicas, two coordinators, and groups."""

    def __init__(self, seed: int, trace: deque[str] | None = None) -> None:
        super().__init__(World(seed), trace)
        self.options = options = Options.draw(self.world.rng)
        self.checks = Checks()
        self.commit_count = 0
        self._number = 0
        self._links = Links(self.world, options, delay_max_us=MESSAGE_MAX_MS * MS)
        self._is_producing = True
        self.wall_skew_ms = 0
        """How far the wall clocks of the coordinators are ahead of the simulated time."""
        self.shard_logs = [ShardLog(number, self._on_append) for number in range(SHARD_COUNT)]
        groups = [f"g{number}" for number in range(options.group_count)]
        self.group_ids = groups
        owners = tuple((number % COORDINATOR_COUNT, 1) for number in range(SHARD_COUNT))
        self.metadata = Metadata(1, 0, 1, self._drawn_groups(), owners)
        config = self.config_of(self.metadata.groups)
        self.brokers = [Broker(self, number, self.metadata, config) for number in range(BROKER_COUNT)]
        self.coordinators = [Coordinator(self, number, self.metadata) for number in range(COORDINATOR_COUNT)]
        for coordinator in self.coordinators:
            coordinator.on_image(self.metadata)

    @property
    def now_ms(self) -> int:
        return self.world.now_us // MS

    @property
    def rng(self) -> random.Random:
        return self.world.rng

    @property
    def leader(self) -> Broker:
        return self.brokers[self.metadata.leader]

    def config_of(self, groups: tuple[str, ...]) -> LogConfig:
        options = self.options
        return LogConfig(
            retention_ms=options.retention_ms,
            retention_bytes=options.retention_bytes,
            retention_hold_groups=groups,
            retention_hold_max_ms=options.hold_max_ms,
            retention_hold_max_bytes=options.hold_max_bytes,
        )

    def run(self) -> None:
        """Runs a time of faults, and then a time without, at whose end nothing may be held any more."""
        self._begin()
        self.world.run_until(FAULTY_MS * MS)
        self._heal()
        self.world.run_until((FAULTY_MS + HEALED_MS) * MS)
        self._check_released()

    def next_number(self) -> int:
        self._number += 1
        return self._number

    # Messages

    def send(self, server: Server, action: Callable[[], None]) -> None:
        """Sends a message to a server. It may be lost."""
        if not self._links.is_lost():
            self._links.deliver(self._links.delay_us(), None, server.run, action)

    def after_hop(self, server: Server, action: Callable[[], None]) -> None:
        """Lets the server continue after an answer of another server, which is repeated until it arrives."""
        self._links.deliver(self._links.delay_us(), None, server.run, action)

    def to_log(self, append: Callable[[], None]) -> None:
        """Sends a write to the brokers. It arrives even if its sender crashes."""
        self._links.deliver(self._links.delay_us(), None, append)

    def announce(self, leader: Broker) -> None:
        """Sends the leader's log start offset to the other replicas."""
        epoch, start_offset = leader.leader_epoch, leader.log.start_offset
        for broker in self.brokers:
            if broker is not leader:
                self.send(broker, lambda broker=broker: broker.follow(epoch, start_offset))  # type: ignore[misc]

    def _publish(self, **changes: object) -> None:
        self.metadata = self.metadata._replace(version=self.metadata.version + 1, **changes)  # type: ignore[arg-type]
        self.note(f"metadata {self.metadata}")
        for server in (*self.brokers, *self.coordinators):
            delay_ms = self.rng.expovariate(1 / self.options.metadata_delay_ms) if self.is_faulty else 0
            image = self.metadata
            learn = lambda server=server, image=image: server.learn(image)  # noqa: E731
            self._links.deliver(int(delay_ms * MS) + 1, None, server.run, learn)

    # Events and faults

    def _begin(self) -> None:
        self._every(PRODUCE_INTERVAL_MS, self._produce)
        self._every(FOLLOW_INTERVAL_MS, self._announce_all)
        for broker in self.brokers:
            self._every(CHECK_INTERVAL_MS, lambda broker=broker: broker.run(broker.tick))  # type: ignore[misc]
        for coordinator in self.coordinators:
            self._every(CHECK_INTERVAL_MS, lambda coordinator=coordinator: coordinator.run(coordinator.tick))  # type: ignore[misc]
        for group_id in self.group_ids:
            interval_ms = self.options.commit_interval_ms
            self._sometimes(interval_ms, lambda group_id=group_id: self._commit(group_id))  # type: ignore[misc]
        options = self.options
        for interval_ms, fault in (
            (options.group_deletion_ms, lambda: self._delete(self.rng.choice(self.group_ids))),
            (options.expiry_ms, self._let_offsets_expire),
            (options.config_change_ms, lambda: self._publish(groups=self._drawn_groups())),
            (options.delete_records_ms, self._delete_records),
            (options.leader_change_ms, self._change_leader),
            (options.shard_move_ms, self._move_shard),
            (options.freeze_ms, self._freeze),
            (options.coordinator_crash_ms, self._crash),
        ):
            if interval_ms:
                self._sometimes(interval_ms, fault)

    def _every(self, interval_ms: int, action: Callable[[], None]) -> None:
        def again() -> None:
            self.world.event_count += 1
            action()
            self.world.after(interval_ms * MS, again)

        self.world.after(self.rng.randrange(interval_ms * MS), again)

    def _sometimes(self, mean_ms: int, fault: Callable[[], None]) -> None:
        """Runs a fault again and again until the faults end."""

        def again() -> None:
            if self.is_faulty:
                self.world.event_count += 1
                fault()
                self.world.after(self._drawn_us(mean_ms), again)

        self.world.after(self._drawn_us(mean_ms), again)

    def _drawn_us(self, mean_ms: int) -> int:
        return int(self.rng.expovariate(1 / mean_ms) * MS) + 1

    def _produce(self) -> None:
        if self._is_producing:
            for broker in self.brokers:
                broker.log.append(self.now_ms)

    def _announce_all(self) -> None:
        for broker in self.brokers:
            if broker.is_leader and not broker.is_frozen:
                self.announce(broker)

    def _commit(self, group_id: str) -> None:
        end_offset = self.leader.log.end_offset
        offset = self.checks.state_of(group_id)
        if not isinstance(offset, int):
            offset = self.leader.log.start_offset
        elif self.rng.random() < self.options.reset_probability:
            offset = self.rng.randint(0, offset)
        else:
            offset = min(end_offset, offset + self.rng.randint(0, 30))
        is_elsewhere = self.rng.random() < self.options.elsewhere_probability
        self._write(group_id, offset, ELSEWHERE if is_elsewhere else PARTITION)

    def _write(self, group_id: str, offset: int, partition: TopicPartition = PARTITION) -> None:
        """Sends a commit."""
        self._to_coordinator(group_id, lambda shard: shard.commit(group_id, partition, offset))

    def _delete(self, group_id: str) -> None:
        """Sends the deletion of a group."""
        self._to_coordinator(group_id, lambda shard: shard.delete(group_id))

    def _let_offsets_expire(self) -> None:
        """Lets the coordinators delete the offsets of groups that do not commit soon."""
        self.wall_skew_ms += OFFSETS_RETENTION_MS
        self.note("the offsets expire")

    def _to_coordinator(self, group_id: str, request: Callable[[OwnedShard], None]) -> None:
        """Sends a request about a group to a coordinator that may or may not own the shard."""
        number = coordinator_shard(group_id, SHARD_COUNT)
        owner = self.metadata.owners[number][0]
        if self.is_faulty and self.rng.random() < 0.2:
            owner = self.rng.randrange(COORDINATOR_COUNT)
        coordinator = self.coordinators[owner]

        def arrive() -> None:
            shard = coordinator.shard(number)
            if coordinator.is_alive and shard is not None:
                request(shard)

        self.send(coordinator, arrive)

    def _on_append(self, records: tuple[GroupRecord, ...], is_deletion: bool) -> None:
        """Notes what a write changes of the groups."""
        for key, value in records:
            if isinstance(key, OffsetCommitKey):
                partition = TopicPartition(key.topic, key.partition)
                self._on_offset(key.group_id, partition, value, is_deletion)

    def _on_offset(self, group_id: str, partition: TopicPartition, value: object, is_deletion: bool) -> None:
        checks = self.checks
        if isinstance(value, OffsetCommitValue):
            self.commit_count += 1
            if partition == PARTITION:
                checks.on_change(group_id, self.now_ms, value.offset)
            elif checks.state_of(group_id) == DELETED:
                checks.on_change(group_id, self.now_ms, None)
        elif is_deletion:
            checks.on_change(group_id, self.now_ms, DELETED)
        elif partition == PARTITION:
            checks.on_change(group_id, self.now_ms, None)
        self.note(f"group {group_id} has {checks.state_of(group_id)} after the offset {value} in {partition}")

    def _drawn_groups(self) -> tuple[str, ...]:
        rng = self.rng
        named = [group_id for group_id in self.group_ids if rng.random() < 0.5]
        return (*named, ALL_GROUPS) if not named or rng.random() < 0.4 else tuple(named)

    def _delete_records(self) -> None:
        leader = self.leader
        if leader.image.leader == leader.id and not leader.is_frozen:
            offset = self.rng.randint(leader.log.start_offset, leader.log.end_offset)
            self.checks.on_delete_records(offset)
            leader.log.retention.start_at(offset)

    def _change_leader(self) -> None:
        others = [broker.id for broker in self.brokers if broker.id != self.metadata.leader]
        self._publish(leader=self.rng.choice(others), leader_epoch=self.metadata.leader_epoch + 1)

    def _move_shard(self) -> None:
        number = self.rng.randrange(SHARD_COUNT)
        self._reassign([number], self.rng.randrange(COORDINATOR_COUNT))

    def _reassign(self, numbers: list[int], coordinator_id: int) -> None:
        owners = list(self.metadata.owners)
        for number in numbers:
            owners[number] = coordinator_id, owners[number][1] + 1
        self._publish(owners=tuple(owners))

    def _freeze(self) -> None:
        server = self.rng.choice([*self.brokers, *self.coordinators])
        server.is_frozen = True
        self.note(f"freeze {type(server).__name__} {server.id}")
        self.world.after(self._drawn_us(FROZEN_MS), server.thaw)

    def _crash(self) -> None:
        coordinator = self.rng.choice(self.coordinators)
        coordinator.crash()
        self.note(f"crash coordinator {coordinator.id}")
        owned = [number for number, (owner, _) in enumerate(self.metadata.owners) if owner == coordinator.id]
        self._reassign(owned, (coordinator.id + 1) % COORDINATOR_COUNT)
        self.world.after(self._drawn_us(CRASHED_MS), coordinator.restart)

    # The end

    def _heal(self) -> None:
        """Ends the faults. Every group reads all records, or begins again and is deleted. Then the shards move."""
        self.is_faulty = self._links.is_faulty = False
        for server in (*self.brokers, *self.coordinators):
            server.thaw()
        for coordinator in self.coordinators:
            coordinator.restart()
        self._reassign(list(range(SHARD_COUNT)), 0)
        for group_id in self.group_ids:
            finish = self._finish_by_deletion if self.rng.random() < 0.3 else self._finish_by_reading
            self._at(QUIET_MS, finish, group_id)
        self._at(LAST_MOVE_MS, self._reassign, list(range(SHARD_COUNT)), 1)
        self._at(LAST_MOVE_MS + CHECK_INTERVAL_MS, self._stop_producing)

    def _stop_producing(self) -> None:
        self._is_producing = False

    def _at(self, time_ms: int, action: Callable[..., None], *args: object) -> None:
        self.world.after((time_ms - self.now_ms) * MS, action, *args)

    def _finish_by_reading(self, group_id: str) -> None:
        """Lets a group commit until it has read the last record."""
        end_offset = self.leader.log.end_offset
        if self._is_producing or self.checks.state_of(group_id) != end_offset:
            self._write(group_id, end_offset)
            self.world.after(500 * MS, self._finish_by_reading, group_id)

    def _finish_by_deletion(self, group_id: str) -> None:
        """Lets a group begin again, and deletes it."""
        if not isinstance(self.checks.state_of(group_id), int):
            self._write(group_id, 0)
            self.world.after(500 * MS, self._finish_by_deletion, group_id)
        else:
            self._finish_deletion(group_id)

    def _finish_deletion(self, group_id: str) -> None:
        if self.checks.state_of(group_id) != DELETED:
            self._delete(group_id)
            self.world.after(500 * MS, self._finish_deletion, group_id)

    def _check_released(self) -> None:
        log = self.leader.log
        if self.options.retention_ms >= 0:
            assert log.start_offset == log.end_offset, (
                f"released: the log starts at {log.start_offset}, every record up to {log.end_offset} has expired"
            )
        size_bytes = sum(segment.files.size_bytes for segment in log.segments.items[1:])
        assert self.options.retention_bytes < 0 or size_bytes < self.options.retention_bytes, (
            f"released: {size_bytes} bytes are left after the first segment"
        )
        starts = {broker.id: broker.log.start_offset for broker in self.brokers}
        assert set(starts.values()) == {log.start_offset}, f"released: the replicas start at {starts}"
