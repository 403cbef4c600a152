"""The servers of the simulated cluster: what they know of the metadata, and what they do with messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm.model import TopicPartition, coordinator_shard
from klamm_broker.log.cleaning import hold_groups
from klamm_broker.log.cleaning.hold_groups import ALL_GROUPS, ShardAnswer
from klamm_broker.log.cleaning.retention_hold import NO_GROUP, LowOffset
from klamm_broker.log.log_config import LogConfig
from klamm_broker.maintenance.held_retention import HeldRetention
from klamm_coordinator.offsets.lowest_offsets import TopicHold
from klamm_server.config.broker_configs import BrokerConfig
from tests.sim.holdsim.shards import PARTITION, TOPIC_ID, OwnedShard
from tests.sim.holdsim.sim_log import SimLog

if TYPE_CHECKING:
    from tests.sim.holdsim.cluster import Cluster

SHARD_COUNT = 3
TIMEOUT_MS = 1_000
CHECK_INTERVAL_MS = 300


class Metadata(NamedTuple):
    """The metadata of the cluster at one time."""

    version: int
    leader: int
    leader_epoch: int
    groups: tuple[str, ...]
    owners: tuple[tuple[int, int], ...]
    """The coordinator of each shard, and the epoch of its assignment."""


class Server:
    """A server that may be frozen. When it is thawed, it handles all messages and timers of the time before."""

    def __init__(self, cluster: Cluster, server_id: int, image: Metadata) -> None:
        self.cluster = cluster
        self.id = server_id
        self.image = image
        self.is_frozen = False
        self._backlog: deque[Callable[[], None]] = deque()

    def run(self, action: Callable[[], None]) -> None:
        if self.is_frozen:
            self._backlog.append(action)
        else:
            action()

    def thaw(self) -> None:
        self.is_frozen = False
        while self._backlog:
            self._backlog.popleft()()

    def learn(self, image: Metadata) -> None:
        if image.version > self.image.version:
            old, self.image = self.image, image
            self.on_image(old)

    def on_image(self, old: Metadata) -> None:
        """Applies the newest metadata."""


class Coordinator(Server):
    """A coordinator with the shards that it believes to own."""

    def __init__(self, cluster: Cluster, server_id: int, image: Metadata) -> None:
        super().__init__(cluster, server_id, image)
        self.is_alive = True
        self.shards: dict[int, tuple[int, OwnedShard]] = {}
        """The epoch and the shard, by number."""

    def on_image(self, old: Metadata) -> None:
        for number, (owner, epoch) in enumerate(self.image.owners):
            held = self.shards.get(number)
            if owner != self.id:
                self._drop(number)
            elif self.is_alive and (held is None or held[0] != epoch):
                self._drop(number)
                self.cluster.after_hop(self, lambda number=number, epoch=epoch: self._load(number, epoch))  # type: ignore[misc]

        if old.groups != self.image.groups:
            for _, shard in list(self.shards.values()):
                if shard.is_loaded:
                    shard.on_holds_changed()

    def _drop(self, number: int) -> None:
        _, shard = self.shards.pop(number, (0, None))
        if shard is not None:
            shard.close()

    def crash(self) -> None:
        self.is_alive = False
        for number in list(self.shards):
            self._drop(number)

    def tick(self) -> None:
        """Handles the timers of the shards."""
        for _, shard in list(self.shards.values()):
            if shard.is_loaded:
                shard.pass_time()

    def restart(self) -> None:
        self.is_alive = True
        self.on_image(self.image)

    def shard(self, number: int) -> OwnedShard | None:
        _, shard = self.shards.get(number, (0, None))
        return shard if shard is not None and shard.is_loaded else None

    def answer(self, numbers: list[int], groups: tuple[str, ...], reply: Callable[[ShardAnswer], None]) -> None:
        """Confirms its shards and searches them, each step after a message to the brokers."""
        if self.is_alive:
            self.cluster.after_hop(self, lambda: self._confirm(numbers, groups, reply))

    def _confirm(self, numbers: list[int], groups: tuple[str, ...], reply: Callable[[ShardAnswer], None]) -> None:
        asked = [shard for number in numbers if (shard := self.shard(number)) is not None]
        confirmed: list[OwnedShard] = []
        left = len(asked)

        def decided(shard: OwnedShard, is_owner: bool) -> None:
            nonlocal left
            left -= 1
            if is_owner:
                confirmed.append(shard)
            if not left:
                self.cluster.after_hop(self, lambda: self._search(confirmed, groups, reply))

        for shard in asked:
            shard.confirm(lambda is_owner, shard=shard: decided(shard, is_owner))  # type: ignore[misc]
        if not asked:
            self._search([], groups, reply)

    def _search(self, shards: list[OwnedShard], groups: tuple[str, ...], reply: Callable[[ShardAnswer], None]) -> None:
        hold = TopicHold(
            [PARTITION], [group for group in groups if group != ALL_GROUPS], ALL_GROUPS in groups, TOPIC_ID
        )
        lowest = NO_GROUP
        for shard in shards:
            named = [
                group_id for group_id in hold.group_ids if coordinator_shard(group_id, SHARD_COUNT) == shard.number
            ]
            for found in shard.search(hold, named).lowest.values():
                lowest = min(lowest, LowOffset(*found))
        if self.is_alive:
            reply(ShardAnswer(frozenset(shard.number for shard in shards), lowest))

    def _load(self, number: int, epoch: int) -> None:
        if self.is_alive and self.image.owners[number] == (self.id, epoch):
            self.shards[number] = epoch, OwnedShard(self, self.cluster.shard_logs[number], epoch)


class _Answer:
    """An awaitable that the simulation completes."""

    def __init__(self) -> None:
        self.value: LowOffset | None = None

    def __await__(self) -> Generator[None, None, LowOffset | None]:
        yield None
        return self.value


class Broker(Server):
    """A replica. The check of held logs and the retention of the log are the code under test."""

    def __init__(self, cluster: Cluster, server_id: int, image: Metadata, config: LogConfig) -> None:
        super().__init__(cluster, server_id, image)
        self.log = SimLog(config)
        self.topic_partition = PARTITION
        self._is_checking = False
        self._asked_ms = 0
        self._requested: Metadata | None = None
        replicas: Any = _OnePartition(self)
        clock: Any = SimpleNamespace(wall_ms=lambda: cluster.now_ms)
        self.retention = HeldRetention(
            replicas,
            BrokerConfig(node_id=1),
            clock,
            offsets=self,
            retire=lambda deletion: None,
            on_disk_full=lambda log_dir: None,
        )

    @property
    def is_leader(self) -> bool:
        return self.image.leader == self.id

    @property
    def leader_epoch(self) -> int:
        return self.image.leader_epoch

    @property
    def high_watermark(self) -> int:
        return self.log.end_offset

    def on_image(self, old: Metadata) -> None:
        self.log.config = self.cluster.config_of(self.image.groups)

    def follow(self, leader_epoch: int, log_start_offset: int) -> None:
        """Applies the log start offset of a leader, as a follower."""
        if not self.is_leader and leader_epoch == self.leader_epoch and log_start_offset > self.log.start_offset:
            self.log.retention.start_at(log_start_offset)

    def tick(self) -> None:
        """Runs retention, as the tasks of a broker do."""
        before, start_offset = list(self.log.segments.items), self.log.start_offset
        self.log.retention.apply(now_ms=self.cluster.now_ms, high_watermark=self.high_watermark)
        checks = self.cluster.checks
        if not self.log.config.is_held:
            checks.leaders_start = max(checks.leaders_start, self.log.start_offset)
        elif self.is_leader:
            self._check_deleted(before, start_offset)
        checks.check_follower(self.id, self.log.start_offset, self.log.segments.items[0].base_offset)
        if not self._is_checking:
            self._is_checking = True
            self._asked_ms, self._requested = self.cluster.now_ms, None
            self._step(self.retention.check())

    def _step(self, check: Coroutine[Any, Any, None]) -> None:
        """Runs the check until it waits for an answer, or to its end."""
        before, start_offset = list(self.log.segments.items), self.log.start_offset
        try:
            check.send(None)
        except StopIteration:
            self._is_checking = False
            self._check_deleted(before, start_offset)
            if self._requested == self.image and self.is_leader:
                self.cluster.checks.check_bounds(self.log.segments.items, self.log.config, self.cluster.now_ms)
        else:
            self._check = check

    def _check_deleted(self, before: list[Any], start_offset: int) -> None:
        items = self.log.segments.items
        kept = [segment for segment in before if segment in items]
        assert self.is_leader or kept == before, f"follower: broker {self.id} deletes by itself"
        self.cluster.checks.on_leader_deleted(
            before[: len(before) - len(kept)],
            kept,
            self.log.config,
            start_offset=start_offset,
            asked_ms=self._asked_ms,
            now_ms=self.cluster.now_ms,
        )

    async def lowest(self, holds: Mapping[TopicPartition, tuple[str, ...]]) -> dict[TopicPartition, LowOffset | None]:
        """Asks the coordinators that own the shards, as this broker knows them."""
        self._requested = self.image
        answer = _Answer()
        self._ask(holds[PARTITION], answer)
        return {PARTITION: await answer}

    def _ask(self, groups: tuple[str, ...], answer: _Answer) -> None:
        owners: dict[int, list[int]] = {}
        for number in sorted(hold_groups.shards_of(groups, SHARD_COUNT)):
            owners.setdefault(self.image.owners[number][0], []).append(number)
        answers: list[ShardAnswer] = []
        check_number = self.cluster.next_number()
        self._check_number = check_number

        def complete() -> None:
            if self._check_number == check_number:
                self._check_number = 0
                answer.value = hold_groups.lowest_of(groups, SHARD_COUNT, answers)
                self._step(self._check)

        def take(one: ShardAnswer) -> None:
            answers.append(one)
            if len(answers) == len(owners):
                complete()

        def reply(one: ShardAnswer) -> None:
            self.cluster.send(self, lambda: take(one))

        for owner, numbers in owners.items():
            coordinator = self.cluster.coordinators[owner]
            self.cluster.send(
                coordinator,
                lambda coordinator=coordinator, numbers=numbers: coordinator.answer(numbers, groups, reply),  # type: ignore[misc]
            )
        self.cluster.world.after(TIMEOUT_MS * 1_000, self.run, complete)


class _OnePartition:
    """The part of `ReplicaManager` that the check uses."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __iter__(self) -> Iterator[Any]:
        return iter([self._broker])

    def get(self, topic_partition: TopicPartition) -> Any:
        return self._broker

    def on_log_start_moved(self, partition: Any) -> None:
        self._broker.cluster.announce(self._broker)
