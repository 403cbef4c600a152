"""Tests the host of a shard: loading, serving and releasing it, and the choice of open shards."""

from __future__ import annotations

import asyncio
import random

import pytest

from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode
from klamm.model import GROUP_METADATA_TOPIC, TopicPartition
from klamm.records import encode_batch, read_header
from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.metadata_pb2 import (
    CoordinatorChangeRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterCoordinatorRecord,
    ShardAssignmentRecord,
    TopicRecord,
)
from klamm_coordinator.classic.messages import Heartbeat, HeartbeatReply
from klamm_coordinator.group_shard.rules import GroupRules
from klamm_coordinator.group_shard.shard_topic import OFFSETS
from klamm_coordinator.groups.settings import GroupSettings
from klamm_coordinator.groups.topics import NO_TOPICS, FixedTopics
from klamm_coordinator.io.log_link import LogLink
from klamm_coordinator.io.shard_host import ShardHost
from klamm_coordinator.io.shards import Shards
from klamm_coordinator.io.write_memory import WriteMemory
from klamm_coordinator.offsets.messages import CommitOffset, CommitOffsets, CommitReply
from klamm_coordinator.runtime.settings import ShardSettings
from klamm_coordinator.runtime.shard_runtime import ShardRuntime
from klamm_coordinator.runtime.shard_topic import ShardTopic
from klamm_server.metadata.entities import ShardImage
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from klamm_server.runtime.clock import SystemClock
from tests.support.counter_shard import COUNTERS, Add, CounterRules, Ring, Total
from tests.support.fake_offsets_log import FakeOffsetsLog
from tests.support.waiting import until

NotCoordinatorError = EXCEPTIONS[ErrorCode.NOT_COORDINATOR]
CoordinatorLoadInProgressError = EXCEPTIONS[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
CoordinatorNotAvailableError = EXCEPTIONS[ErrorCode.COORDINATOR_NOT_AVAILABLE]


class HeldLog(FakeOffsetsLog):
    """A log that answers a produce only when `release` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.release = asyncio.Event()
        self.release.set()

    async def produce(self, message, timeout_ms):
        await self.release.wait()
        return await super().produce(message, timeout_ms)


def link_to(log: FakeOffsetsLog, topic: ShardTopic, epoch: int, memory: WriteMemory | None = None) -> LogLink:
    return LogLink(
        topic,
        0,
        ShardImage(coordinator_id=1, producer_id=1, writer_epoch=epoch),
        log,
        clock=SystemClock(),
        rng=random.Random(1),
        append_max_bytes=1_000_000,
        load_buffer_bytes=1_000_000,
        load_slots=asyncio.Semaphore(1),
        memory=memory or WriteMemory(1 << 30),
    )


def host_on(
    log: FakeOffsetsLog,
    *,
    epoch: int = 0,
    memory: WriteMemory | None = None,
    topics: FixedTopics = NO_TOPICS,
    **settings: int,
) -> ShardHost:
    group_settings, rng = GroupSettings(**settings), random.Random(1)
    return ShardHost(
        0,
        link_to(log, OFFSETS, epoch, memory),
        lambda: ShardRuntime(GroupRules(group_settings, topics=lambda: topics), group_settings, rng),
        clock=SystemClock(),
        rng=rng,
    )


async def loaded(host: ShardHost) -> ShardHost:
    await until(lambda: host.is_loaded)
    return host


def commit(offset: int):
    wanted = CommitOffset(partition=TopicPartition("t", 0), offset=offset, leader_epoch=-1, metadata="")
    return lambda reply_id: CommitOffsets(
        reply_id=reply_id, group_id="g", generation_id=-1, member_id="", instance_id=None, offsets=(wanted,)
    )


def beat(reply_id: int) -> Heartbeat:
    return Heartbeat(reply_id=reply_id, group_id="g", generation_id=1, member_id="m", instance_id=None)


def stored_offset(host: ShardHost) -> int:
    (fetched,) = host.rules.growth.fetch("g", [TopicPartition("t", 0)])
    return fetched.offset


def test_an_acknowledged_commit_is_loaded_by_the_next_owner():
    async def scenario() -> None:
        log = HeldLog()
        first = await loaded(host_on(log))
        assert await first.ask(commit(42)) == CommitReply(errors=(ErrorCode.NONE,))
        await first.close()

        second = await loaded(host_on(log, epoch=1))

        assert stored_offset(second) == 42
        await second.close()

    asyncio.run(scenario())


def test_writes_that_wait_for_the_log_have_a_bound_of_bytes_over_all_shards():
    async def scenario() -> None:
        log, memory = HeldLog(), WriteMemory(1_000)
        hosts = [await loaded(host_on(log, memory=memory)), await loaded(host_on(HeldLog(), memory=memory))]
        log.release.clear()
        waiting = [asyncio.create_task(hosts[0].ask(commit(number))) for number in range(100)]

        assert await until(lambda: refusals(waiting)) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert 1_000 <= memory.held_bytes < 1_200
        with pytest.raises(BrokerError, match="too many writes"):
            await hosts[1].ask(commit(1))
        assert (await hosts[1].ask(beat)).error is ErrorCode.UNKNOWN_MEMBER_ID

        log.release.set()
        assert CommitReply(errors=(ErrorCode.NONE,)) in await asyncio.gather(*waiting, return_exceptions=True)
        assert memory.held_bytes == 0
        for host in hosts:
            await host.close()

    asyncio.run(scenario())


def test_a_released_shard_gives_back_the_memory_of_its_waiting_writes():
    async def scenario() -> None:
        log, memory = HeldLog(), WriteMemory(1 << 30)
        host = await loaded(host_on(log, memory=memory))
        log.release.clear()
        waiting = asyncio.create_task(host.ask(commit(1)))
        await until(lambda: memory.held_bytes)
        await host.close()
        with pytest.raises(NotCoordinatorError):
            await waiting
        assert memory.held_bytes == 0

    asyncio.run(scenario())


def refusals(tasks: list[asyncio.Task]) -> set[ErrorCode]:
    """Returns the codes of the errors with which tasks have ended."""
    errors = (task.exception() for task in tasks if task.done())
    return {error.code for error in errors if isinstance(error, BrokerError)}


def test_a_request_during_loading_raises_coordinator_load_in_progress():
    async def scenario() -> None:
        log = HeldLog()
        log.release.clear()
        host = host_on(log)

        with pytest.raises(CoordinatorLoadInProgressError):
            await host.ask(commit(1))

        log.release.set()
        assert (await (await loaded(host)).ask(commit(1))).errors == (ErrorCode.NONE,)
        await host.close()

    asyncio.run(scenario())


def test_a_pending_commit_raises_not_coordinator_when_the_shard_is_closed():
    async def scenario() -> None:
        log = HeldLog()
        host = await loaded(host_on(log))
        log.release.clear()
        asked = asyncio.create_task(host.ask(commit(1)))
        await until(lambda: host.shard.pending_write_count == 1)
        assert stored_offset(host) == -1

        await host.close()

        with pytest.raises(NotCoordinatorError):
            await asked
        with pytest.raises(NotCoordinatorError):
            await host.ask(commit(2))

    asyncio.run(scenario())


def test_a_cancelled_request_does_not_affect_later_requests():
    async def scenario() -> None:
        log = HeldLog()
        host = await loaded(host_on(log))
        log.release.clear()
        asked = asyncio.create_task(host.ask(commit(1)))
        await until(lambda: host.shard.pending_write_count == 1)
        asked.cancel()
        log.release.set()

        assert (await host.ask(commit(2))).errors == (ErrorCode.NONE,)
        assert stored_offset(host) == 2
        await host.close()

    asyncio.run(scenario())


def test_beyond_pending_writes_max_writes_are_refused_but_not_heartbeats(monkeypatch: pytest.MonkeyPatch):
    async def scenario() -> None:
        log = HeldLog()
        host = await loaded(host_on(log, pending_writes_max=2))
        refused: list[int] = []
        monkeypatch.setattr(host.shard.rules, "on_refused", lambda request, context: refused.append(request.reply_id))
        log.release.clear()
        waiting = [asyncio.create_task(host.ask(commit(number))) for number in range(2)]
        await until(lambda: host.shard.pending_write_count == 2)

        with pytest.raises(CoordinatorNotAvailableError):
            await host.ask(commit(3))
        assert refused == [3], "the rules note the refused request"
        assert await host.ask(beat) == HeartbeatReply(error=ErrorCode.UNKNOWN_MEMBER_ID)

        log.release.set()
        assert {(await one).errors for one in waiting} == {(ErrorCode.NONE,)}
        await host.close()

    asyncio.run(scenario())


def test_a_fenced_owner_closes_its_shard_by_itself():
    async def scenario() -> None:
        log = HeldLog()
        former = await loaded(host_on(log))
        latter = await loaded(host_on(log, epoch=1))

        with pytest.raises(NotCoordinatorError):
            await former.ask(commit(1))

        assert not former.is_loaded
        await former.close()
        await latter.close()

    asyncio.run(scenario())


def test_unknown_records_are_skipped_during_loading():
    async def scenario() -> None:
        log = HeldLog()
        first = await loaded(host_on(log))
        await first.ask(commit(42))
        await first.close()
        foreign = [(0, b"\x00\x0b" + b"unknown", b"?", ()), (0, None, b"no key", ())]
        batch = bytearray(encode_batch(foreign))
        log.store(batch, read_header(batch))

        second = await loaded(host_on(log, epoch=1))

        assert stored_offset(second) == 42
        await second.close()

    asyncio.run(scenario())


class Bells:
    """Records the orders of the shards and the hosts that they forget."""

    def __init__(self) -> None:
        self.rung: list[object] = []
        self.forgotten: list[ShardHost] = []

    def carry_out(self, orders, host: ShardHost) -> None:
        self.rung += orders

    def forget(self, host: ShardHost) -> None:
        self.forgotten.append(host)


def counters_on(log: FakeOffsetsLog, bells: Bells, *, epoch: int) -> ShardHost:
    return ShardHost(
        0,
        link_to(log, COUNTERS, epoch),
        lambda: ShardRuntime(CounterRules(), ShardSettings(), random.Random(1)),
        carrier=bells,
        clock=SystemClock(),
        rng=random.Random(1),
    )


def test_a_host_loads_and_serves_any_rules_and_executes_their_orders():
    async def scenario() -> None:
        log, bells = HeldLog(), Bells()
        first = await loaded(counters_on(log, bells, epoch=0))
        assert await first.ask(lambda reply_id: Add(reply_id=reply_id, name="a", amount=99)) == Total(total=99)
        await first.close()
        assert bells.forgotten == [first]

        second = await loaded(counters_on(log, bells, epoch=1))

        assert await second.ask(lambda reply_id: Add(reply_id=reply_id, name="a", amount=1)) == Total(total=100)
        assert bells.rung == [Ring("a")]
        await second.close()

    asyncio.run(scenario())


class RecordingHost:
    """Replaces a ShardHost in the tests of which shards are opened."""

    def __init__(self, number: int, writer: ShardImage, log: list[str]) -> None:
        self.number = number
        self._log = log
        self._name = f"{number}@{writer.writer_epoch}"
        log.append(f"open {self._name}")

    def step(self, event: object) -> None:
        self._log.append(f"step {self._name} {event}")

    async def close(self) -> None:
        self._log.append(f"close {self._name}")


def image_with(*records: MetadataRecord, base: MetadataImage | None = None) -> MetadataImage:
    image = base or MetadataImage.empty()
    return replay(image, records, image.end_index + len(records))


def registration(epoch: int) -> MetadataRecord:
    return MetadataRecord(
        register_coordinator=RegisterCoordinatorRecord(
            coordinator_id=1,
            incarnation_id=bytes(16),
            coordinator_epoch=epoch,
            endpoint=Endpoint(host="h", port=1),
            fenced=True,
        )
    )


def unfencing(epoch: int, *, fenced: bool = False) -> MetadataRecord:
    return MetadataRecord(
        coordinator_change=CoordinatorChangeRecord(coordinator_id=1, coordinator_epoch=epoch, fenced=fenced)
    )


def assignment(shard: int, owner: int, epoch: int) -> MetadataRecord:
    return MetadataRecord(
        shard_assignment=ShardAssignmentRecord(
            topic=GROUP_METADATA_TOPIC, shard=shard, coordinator_id=owner, producer_id=5, writer_epoch=epoch
        )
    )


def topic_of_two_shards() -> list[MetadataRecord]:
    topic_id = bytes(range(16))
    partitions = [
        MetadataRecord(
            partition=PartitionRecord(
                topic_id=topic_id, partition=number, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0
            )
        )
        for number in range(2)
    ]
    return [MetadataRecord(topic=TopicRecord(name=GROUP_METADATA_TOPIC, topic_id=topic_id)), *partitions]


@pytest.fixture
def assigned_image() -> MetadataImage:
    """Returns an image in which coordinator 1, registered with epoch 0, owns both shards."""
    return image_with(registration(0), *topic_of_two_shards(), unfencing(0), assignment(0, 1, 3), assignment(1, 1, 4))


class TestShards:
    def follow(self, *images: MetadataImage, epoch: int = 0) -> list[str]:
        """Applies the images in turn. Returns the log of opened and closed shards."""
        log: list[str] = []

        async def scenario() -> None:
            shards = Shards(
                GROUP_METADATA_TOPIC, 1, lambda: epoch, lambda number, writer: RecordingHost(number, writer, log)
            )
            for image in images:
                shards.on_image(image)
                log.append("-")
            await shards.close()

        asyncio.run(scenario())
        return log

    def test_newly_assigned_shards_are_opened_and_unassigned_shards_are_closed(self, assigned_image):
        moved = image_with(assignment(0, 2, 5), base=assigned_image)

        assert self.follow(assigned_image, moved) == [
            "open 0@3",
            "open 1@4",
            "-",
            "-",
            "close 0@3",
            "close 1@4",
        ]

    def test_a_shard_with_a_new_writer_epoch_is_opened_again(self, assigned_image):
        again = image_with(assignment(0, 1, 5), base=assigned_image)

        assert "open 0@5" in self.follow(assigned_image, again)

    def test_an_assignment_to_an_earlier_coordinator_epoch_is_ignored(self, assigned_image):
        assert self.follow(assigned_image, epoch=9) == ["-"]

    def test_a_fenced_coordinator_owns_nothing(self, assigned_image):
        fenced = image_with(unfencing(0, fenced=True), base=assigned_image)

        assert self.follow(assigned_image, fenced)[:3] == ["open 0@3", "open 1@4", "-"]
        assert sorted(self.follow(assigned_image, fenced)[4:]) == ["close 0@3", "close 1@4"]
