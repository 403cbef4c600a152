"""Tests which requests the Fetcher sends to which broker and when. Each test gives the brokers' answers."""

from __future__ import annotations

import asyncio
import functools
import random
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence

from klamm.cluster.metadata import ClusterView, Node, PartitionView, TopicView, node_of
from klamm.consumer.config import ConsumerConfig
from klamm.consumer.fetch.fetch_buffer import FetchBuffer
from klamm.consumer.fetch.fetcher import Fetcher
from klamm.consumer.offset_policy import OffsetPolicy
from klamm.consumer.partition_state import PositionState
from klamm.consumer.position_reset import LostPosition
from klamm.consumer.subscription import SubscriptionState
from klamm.errors import EXCEPTIONS, ErrorCode, OffsetOutOfRangeError, TopicAuthorizationFailedError
from klamm.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from klamm.records import encode_batch
from klamm.retry import Backoff
from klamm.wire.framed import encode_framed
from klamm.wire.v1 import broker_pb2, common_pb2
from tests.support.loop_time import run_without_waiting
from tests.support.waiting import settle, until

A, B, C = (TopicPartition("t", number) for number in range(3))


class Call:
    """A Fetch request that a broker has received. The test ends it with `answer` or `fail`."""

    def __init__(self, node_id: int, request: broker_pb2.FetchRequest) -> None:
        self.node_id = node_id
        self.request = request
        self.outcome: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    @property
    def asked(self) -> dict[TopicPartition, int]:
        return {
            TopicPartition(partition.topic, partition.partition): partition.fetch_offset
            for partition in self.request.partitions
        }

    @property
    def waits(self) -> bool:
        return self.request.max_wait_ms > 0

    async def answer(
        self,
        parts: dict[TopicPartition, object] | None = None,
        nodes: Sequence[common_pb2.Node] = (),
        throttle_ms: int = 0,
    ) -> None:
        """Answers each partition that was asked for: with batches, an ErrorCode, a part, or nothing."""
        header, records = broker_pb2.FetchHeader(node_endpoints=nodes, throttle_time_ms=throttle_ms), []
        for tp in self.asked:
            part = (parts or {}).get(tp, b"")
            made = broker_pb2.FetchedPartition(topic=tp.topic, partition=tp.partition, current_leader=-1)
            if isinstance(part, ErrorCode):
                made.error_code = part
            elif isinstance(part, broker_pb2.FetchedPartition):
                made.MergeFrom(part)
            else:
                made.records_bytes = len(part)
                made.high_watermark = 1_000
                records.append(part)
            header.partitions.append(made)
        self.outcome.set_result(encode_framed(header, records))
        await settle()

    async def fail(self, code: ErrorCode) -> None:
        await self.break_with(EXCEPTIONS[code]("scripted"))

    async def break_with(self, error: Exception) -> None:
        self.outcome.set_exception(error)
        await settle()


class Client:
    """The parts of KlammClient that a Fetcher uses. Partition n is led by broker `leaders[n]`."""

    def __init__(self, leaders: dict[int, int]) -> None:
        self.backoff = Backoff(initial_ms=1, max_ms=60_000, jitter=0.0)
        self.rng = random.Random(1)
        self.calls: list[Call] = []
        self.refreshed: list[set[str]] = []
        self.on_change: Callable[[], None] = lambda: None
        self.lead(leaders)

    def lead(self, leaders: dict[int, int], leader_epoch: int = 7, also: tuple[int, ...] = ()) -> None:
        """Sets the leader of each partition. A leader of -1 means that the partition has none.

        `also` names brokers that lead nothing.
        """
        partitions = tuple(
            PartitionView(partition=number, leader=leader, leader_epoch=leader_epoch, replicas=(leader,), isr=(leader,))
            for number, leader in leaders.items()
        )
        nodes = {broker: Node(node_id=broker, host="h", port=1) for broker in {*leaders.values(), *also} - {-1}}
        self.cluster = ClusterView(
            brokers=nodes, topics={"t": TopicView(name="t", topic_id=uuid.UUID(int=1), partitions=partitions)}
        )

    async def fetch(self, node_id: int, request: broker_pb2.FetchRequest, *, timeout_ms: int) -> bytes:
        assert timeout_ms > request.max_wait_ms
        call = Call(node_id, request)
        self.calls.append(call)
        return await call.outcome

    def update_leader(
        self, tp: TopicPartition, leader: int, leader_epoch: int, nodes: Iterable[common_pb2.Node]
    ) -> bool:
        before = self.cluster
        self.cluster = before.with_leader(tp, leader, leader_epoch, map(node_of, nodes))
        if self.cluster is not before:
            self.on_change()
        return self.cluster is not before

    async def refresh_metadata(self, topics: set[str]) -> None:
        self.refreshed.append(topics)


class World:
    """A Fetcher and its collaborators. Partitions a, b and c are assigned at offset 0, each on a broker of its own."""

    def __init__(
        self,
        reset: str = "earliest",
        leaders: dict[int, int] | None = None,
        buffer_bytes: int = 10_000,
        **config: object,
    ):
        self.client = Client(leaders or {0: 1, 1: 1, 2: 2})
        self.subscription = SubscriptionState()
        self.subscription.assign([A, B, C])
        for tp in (A, B, C):
            self.subscription.require(tp).seek(0)
        self.buffer = FetchBuffer(self.subscription, buffer_bytes)
        self.progress = 0
        policy = OffsetPolicy(self.subscription, reset)
        parsed = ConsumerConfig.parse(fetch_max_wait_ms=60_000, **config)
        self.fetcher = Fetcher(self.client, parsed, self.subscription, self.buffer, policy, self._on_progress)
        self.client.on_change = self.fetcher.pump

    def _on_progress(self) -> None:
        self.progress += 1

    async def pump(self, **more: bool) -> list[Call]:
        """Runs the fetcher. Returns the calls in flight afterwards."""
        self.fetcher.pump(**more)
        await settle()
        return self.open

    @property
    def open(self) -> list[Call]:
        return [call for call in self.client.calls if not call.outcome.done()]

    def check_leaders(self) -> None:
        """Checks the leaders as a poll does before it returns anything."""
        cluster = self.client.cluster
        self.subscription.check_leaders(lambda tp: -1 if cluster.leader_of(tp) is None else cluster.leader_epoch_of(tp))

    async def read(self, tp: TopicPartition, position: int, leader_epoch: int) -> None:
        """Takes all fetched data, moves the position as a poll does, and runs the fetcher."""
        self.check_leaders()
        self.buffer.release(self.buffer.take())
        state = self.subscription.require(tp)
        state.position, state.leader_epoch = position, leader_epoch
        await self.pump(read=True)

    def open_at(self, node_id: int) -> Call:
        (call,) = [call for call in self.open if call.node_id == node_id]
        return call


def scenario(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    @functools.wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


def batch(first: int, count: int = 1, size: int = 10, leader_epoch: int = -1) -> bytes:
    return encode_batch([(0, None, bytes(size), ())] * count, base_offset=first, partition_leader_epoch=leader_epoch)


def epochs(call: Call) -> dict[TopicPartition, tuple[int, int]]:
    """Returns (current leader epoch, last fetched epoch) of each partition in the call."""
    return {
        TopicPartition(partition.topic, partition.partition): (
            partition.current_leader_epoch,
            partition.last_fetched_epoch,
        )
        for partition in call.request.partitions
    }


def part(**fields: object) -> broker_pb2.FetchedPartition:
    return broker_pb2.FetchedPartition(**fields)


@scenario
async def test_every_leader_gets_one_long_poll_for_all_of_its_partitions():
    world = World()
    await world.pump()
    assert [(call.node_id, call.asked, call.waits) for call in world.open] == [
        (1, {A: 0, B: 0}, True),
        (2, {C: 0}, True),
    ]
    assert world.open[0].request.partitions[0].current_leader_epoch == 7
    assert len(await world.pump()) == 2, "pumping again asks nothing twice"
    await world.fetcher.close()


@scenario
async def test_fetched_data_is_buffered_and_the_other_partitions_are_fetched_without_waiting():
    world = World()
    await world.pump()
    await world.open_at(1).answer({A: batch(0, 3)})
    assert world.progress == 1
    assert world.buffer.has_ready()
    assert world.subscription.require(A).high_watermark == 1_000
    again = world.open_at(1)
    assert (again.asked, again.waits) == ({B: 0}, False)
    await world.fetcher.close()


@scenario
async def test_a_broker_that_throttles_gets_no_fetch_before_the_throttle_time_is_over():
    world = World()
    await world.pump()
    await world.open_at(1).answer({A: batch(0, 3)}, throttle_ms=3_600_000)
    assert world.progress == 1, "what came is read"
    assert [call.node_id for call in world.open] == [2]
    await world.read(A, 3, -1)
    assert [call.node_id for call in world.open] == [2], "also when there is room again"
    await world.fetcher.close()


def test_a_fetcher_continues_by_itself_after_the_throttle_time():
    async def story() -> None:
        world = World()
        await world.pump()
        await world.open_at(1).answer({A: batch(0, 3)}, throttle_ms=20)
        await until(lambda: [call for call in world.open if call.node_id == 1], "broker 1 is not asked again")
        await world.fetcher.close()

    run_without_waiting(story())


@scenario
async def test_after_an_empty_answer_without_waiting_no_fetch_is_sent_before_data_is_read():
    world = World()
    await world.pump()
    await world.open_at(1).answer({A: batch(0, 3)})
    await world.open_at(1).answer()
    assert [call.node_id for call in world.open] == [2]
    assert [call.node_id for call in await world.pump()] == [2]
    world.buffer.release(world.buffer.take())
    await world.pump(read=True)
    again = world.open_at(1)
    assert again.waits
    assert again.asked == {A: 3, B: 0}
    await world.fetcher.close()


@scenario
async def test_the_next_fetch_is_sent_while_the_fetched_data_is_read():
    world = World()
    await world.pump()
    await world.open_at(2).answer({C: batch(0, 5)})
    world.buffer.take()
    await world.pump(read=True)
    assert world.open_at(2).asked == {C: 5}
    await world.fetcher.close()


@scenario
async def test_a_full_buffer_stops_fetching():
    world = World(buffer_bytes=50)
    await world.pump()
    await world.open_at(2).answer({C: batch(0, 1, size=100)})
    taken = world.buffer.take()
    await world.pump(read=True)
    assert [call.node_id for call in world.open] == [1]
    world.buffer.release(taken)
    await world.pump(read=True)
    assert world.open_at(2).asked == {C: 1}
    await world.fetcher.close()


@scenario
async def test_a_seek_cancels_the_pending_fetch_and_sends_a_new_one():
    world = World()
    await world.pump()
    old = world.open_at(2)
    world.subscription.require(C).seek(500)
    await world.pump()
    assert old.outcome.cancelled()
    assert world.open_at(2).asked == {C: 500}
    await world.fetcher.close()


@scenario
async def test_an_answer_that_arrives_after_a_seek_is_dropped():
    world = World()
    await world.pump()
    world.subscription.require(C).seek(500)
    await world.open_at(2).answer({C: batch(0, 5)})
    assert world.buffer.buffered_bytes == 0
    assert world.open_at(2).asked == {C: 500}
    await world.fetcher.close()


@scenario
async def test_a_resume_replaces_the_pending_fetch_to_include_the_partition():
    world = World()
    world.subscription.require(B).paused = True
    await world.pump()
    only_a = world.open_at(1)
    assert only_a.asked == {A: 0}
    world.subscription.require(B).paused = False
    await world.pump()
    assert only_a.outcome.cancelled()
    assert world.open_at(1).asked == {A: 0, B: 0}
    await world.fetcher.close()


@scenario
async def test_offset_out_of_range_resets_the_position_by_the_policy():
    world = World(reset="earliest")
    await world.pump()
    await world.open_at(2).answer({C: ErrorCode.OFFSET_OUT_OF_RANGE})
    assert world.subscription.resetting() == {C: EARLIEST_TIMESTAMP}
    assert world.fetcher.take_failure() is None
    await world.fetcher.close()


@scenario
async def test_the_nearest_policy_uses_the_log_bounds_in_the_out_of_range_answer():
    world = World(reset="nearest")
    world.subscription.require(C).seek(30)
    await world.pump()
    refused = part(error_code=ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=10, high_watermark=20)
    await world.open_at(2).answer({C: refused})
    assert world.subscription.resetting() == {C: LATEST_TIMESTAMP}
    assert world.subscription.require(C).lost == LostPosition(30, 10, 20)
    await world.fetcher.close()


@scenario
async def test_offset_out_of_range_without_a_policy_is_raised_by_the_next_poll():
    world = World(reset="none")
    await world.pump()
    await world.open_at(2).answer({C: ErrorCode.OFFSET_OUT_OF_RANGE})
    assert isinstance(world.fetcher.take_failure(), OffsetOutOfRangeError)
    assert world.fetcher.take_failure() is None
    assert world.subscription.require(C).state is PositionState.FETCHING
    await world.fetcher.close()


@scenario
async def test_offset_out_of_range_is_raised_only_after_the_unread_data_before_it_is_read():
    world = World(reset="none")
    await world.pump()
    await world.open_at(2).answer({C: batch(0, 5)})
    world.buffer.take()
    await world.pump(read=True)
    await world.open_at(2).answer({C: ErrorCode.OFFSET_OUT_OF_RANGE})
    assert world.fetcher.take_failure() is None
    world.subscription.require(C).position = 5
    await until(lambda: any(call.node_id == 2 for call in world.open))
    await world.open_at(2).answer({C: ErrorCode.OFFSET_OUT_OF_RANGE})
    assert isinstance(world.fetcher.take_failure(), OffsetOutOfRangeError)
    await world.fetcher.close()


@scenario
async def test_a_moved_leader_is_looked_up_and_gets_the_fetch():
    world = World()
    await world.pump()
    await world.open_at(2).answer({C: ErrorCode.NOT_LEADER_OR_FOLLOWER})
    assert world.client.refreshed == [{"t"}]
    world.client.lead({0: 1, 1: 1, 2: 3})
    await world.pump()
    await until(lambda: any(call.node_id == 3 for call in world.open))
    assert world.open_at(3).asked == {C: 0}
    assert world.fetcher.take_failure() is None
    await world.fetcher.close()


@scenario
async def test_the_same_records_from_the_old_and_the_new_leader_are_buffered_once():
    world = World()
    await world.pump()
    old = world.open_at(2)
    world.client.lead({0: 1, 1: 1, 2: 3})
    await world.pump()
    new = world.open_at(3)
    assert new.asked == old.asked == {C: 0}
    await old.answer({C: batch(0, 3)})
    await new.answer({C: batch(0, 5)})
    assert [(each.fetch_offset, each.next_offset) for each in world.buffer.take()] == [(0, 3)]
    assert world.buffer.buffered_bytes == len(batch(0, 3))
    assert world.fetcher.take_failure() is None
    await world.fetcher.close()


@scenario
async def test_a_failed_fetch_is_retried():
    world = World()
    await world.pump()
    await world.open_at(2).fail(ErrorCode.NETWORK_EXCEPTION)
    assert world.fetcher.metrics.failures == 1
    await until(lambda: any(call.node_id == 2 for call in world.open))
    assert world.fetcher.take_failure() is None
    await world.fetcher.close()


@scenario
async def test_a_fatal_fetch_error_is_raised_by_the_next_poll():
    world = World()
    await world.pump()
    await world.open_at(2).answer({C: ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    failure = world.fetcher.take_failure()
    assert isinstance(failure, TopicAuthorizationFailedError)
    assert "t-2" in str(failure)
    await world.open_at(1).fail(ErrorCode.MESSAGE_TOO_LARGE)
    assert world.fetcher.take_failure().code is ErrorCode.MESSAGE_TOO_LARGE
    await world.fetcher.close()


@scenario
async def test_an_unexpected_exception_is_raised_by_the_next_poll_and_the_fetch_is_retried():
    world = World()
    await world.pump()
    progress = world.progress
    await world.open_at(2).break_with(TypeError("a bug"))
    assert world.progress > progress
    failure = world.fetcher.take_failure()
    assert isinstance(failure, TypeError)
    await until(lambda: any(call.node_id == 2 for call in world.open))
    await world.open_at(2).answer({C: batch(0, 5)})
    assert world.buffer.has_ready()
    assert world.fetcher.take_failure() is None
    await world.fetcher.close()


@scenario
async def test_an_answer_with_an_unrequested_partition_is_an_error_and_the_fetch_is_retried():
    world = World()
    await world.pump()
    header = broker_pb2.FetchHeader(partitions=[broker_pb2.FetchedPartition(topic="another", partition=0)])
    world.open_at(2).outcome.set_result(encode_framed(header, []))
    await settle()
    assert isinstance(world.fetcher.take_failure(), KeyError)
    await until(lambda: any(call.node_id == 2 for call in world.open))
    await world.fetcher.close()


@scenario
async def test_closing_cancels_all_pending_fetches():
    world = World()
    await world.pump()
    await world.fetcher.close()
    assert all(call.outcome.cancelled() for call in world.client.calls)
    assert await world.pump() == []


@scenario
async def test_a_fetch_names_the_leader_epoch_of_the_last_batch_read():
    world = World()
    await world.pump()
    assert epochs(world.open_at(2)) == {C: (7, -1)}
    await world.open_at(2).answer({C: batch(0, 2, leader_epoch=3) + batch(2, 1, leader_epoch=5)})
    await world.read(C, 3, 5)
    assert epochs(world.open_at(2)) == {C: (7, 5)}
    await world.fetcher.close()


@scenario
async def test_the_position_is_validated_before_the_first_fetch_from_a_new_leader():
    world = World()
    await world.pump()
    await world.open_at(2).answer({C: batch(0, 3, leader_epoch=7)})
    await world.read(C, 3, 7)
    waiting = world.open_at(2)
    world.client.lead({0: 1, 1: 3, 2: 3}, leader_epoch=8)
    await world.pump()
    assert world.open_at(3).asked == {B: 0}, "of which nothing was read"
    await waiting.answer({C: ErrorCode.FENCED_LEADER_EPOCH})
    await world.open_at(3).answer()
    world.check_leaders()
    (waits,) = world.subscription.validating()
    assert waits == C
    world.subscription.complete_validation(C, 3, 7, current_leader_epoch=8)
    await world.pump()
    await until(lambda: any(C in call.asked for call in world.open))
    assert epochs(world.open_at(3))[C] == (8, 7)
    await world.fetcher.close()


@scenario
async def test_metadata_is_refreshed_until_the_partition_has_a_leader_to_validate_the_position():
    world = World()
    await world.pump()
    await world.open_at(2).answer({C: batch(0, 3, leader_epoch=7)})
    await world.read(C, 3, 7)
    waiting = world.open_at(2)
    world.client.lead({0: 1, 1: 1, 2: -1}, leader_epoch=8)
    await waiting.fail(ErrorCode.NETWORK_EXCEPTION)
    asked = len(world.client.refreshed)
    await until(lambda: len(world.client.refreshed) >= asked + 3)
    world.check_leaders()
    assert not world.subscription.validating(), "there is nobody to ask"
    world.client.lead({0: 1, 1: 1, 2: 3}, leader_epoch=9)
    world.check_leaders()
    assert set(world.subscription.validating()) == {C}
    await world.fetcher.close()


@scenario
async def test_metadata_is_refreshed_until_a_leader_can_answer_where_the_logs_diverge():
    world = World()
    await world.pump()
    await world.open_at(2).answer({C: batch(0, 3, leader_epoch=7)})
    await world.read(C, 3, 7)
    await world.open_at(2).answer({C: part(diverging=broker_pb2.DivergingEpoch(epoch=6, end_offset=1))})
    world.client.lead({0: 1, 1: 1, 2: -1})
    await world.pump()
    await until(lambda: len(world.client.refreshed) >= 3)
    assert all(C not in call.asked for call in world.open)
    await world.fetcher.close()


@scenario
async def test_a_diverging_log_is_not_fetched_before_the_position_is_validated():
    world = World()
    await world.pump()
    await world.open_at(2).answer({C: batch(0, 3, leader_epoch=7)})
    await world.read(C, 3, 7)
    progress = world.progress
    await world.open_at(2).answer({C: part(diverging=broker_pb2.DivergingEpoch(epoch=6, end_offset=1))})
    assert world.progress > progress, "the next poll need not wait"
    assert world.subscription.is_unchecked
    assert [call.node_id for call in await world.pump()] == [1]
    assert world.subscription.require(C).state is PositionState.FETCHING, "until the poll: records may be being read"
    world.check_leaders()
    assert set(world.subscription.validating()) == {C}
    assert world.buffer.buffered_bytes == 0
    await world.fetcher.close()


@scenario
async def test_a_divergence_before_any_record_is_read_fetches_again_from_the_position():
    """If the consumer does not know the epoch before its position, it cannot ask where the logs diverge."""
    world = World()
    await world.pump()
    await world.open_at(2).answer({C: batch(0, 3, leader_epoch=7)})
    world.buffer.release(world.buffer.take())
    world.check_leaders()
    await world.pump(read=True)
    await world.open_at(2).answer({C: part(diverging=broker_pb2.DivergingEpoch(epoch=6, end_offset=1))})
    world.check_leaders()
    await world.pump()
    assert world.open_at(2).asked == {C: 0}
    assert epochs(world.open_at(2)) == {C: (7, -1)}
    await world.fetcher.close()


@scenario
async def test_a_leader_hint_to_an_unknown_broker_is_followed_without_a_metadata_refresh():
    world = World()
    await world.pump()
    node = common_pb2.Node(node_id=9, endpoint=common_pb2.Endpoint(host="new", port=9))
    hint = part(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=9, current_leader_epoch=8)
    await world.open_at(2).answer({C: hint}, nodes=[node])
    assert world.open_at(9).asked == {C: 0}
    assert epochs(world.open_at(9)) == {C: (8, -1)}
    assert world.client.refreshed == []
    await world.fetcher.close()


@scenario
async def test_an_answer_with_a_leader_hint_and_records_causes_no_duplicate_fetch():
    world = World()
    await world.pump()
    hint = part(error_code=ErrorCode.FENCED_LEADER_EPOCH, current_leader=2, current_leader_epoch=8)
    await world.open_at(1).answer({A: hint, B: batch(0, 3)})
    assert [call.asked for call in world.client.calls if B in call.asked] == [{A: 0, B: 0}]
    assert world.open_at(2).asked == {A: 0, C: 0}
    assert world.fetcher.take_failure() is None
    await world.fetcher.close()


@scenario
async def test_a_broker_with_older_metadata_is_retried_without_a_metadata_refresh():
    world = World()
    await world.pump()
    await world.open_at(2).answer({C: ErrorCode.UNKNOWN_LEADER_EPOCH})
    await until(lambda: any(call.node_id == 2 for call in world.open))
    assert world.client.refreshed == []
    await world.open_at(2).answer({C: ErrorCode.OFFSET_NOT_AVAILABLE})
    await until(lambda: any(call.node_id == 2 for call in world.open))
    assert world.client.refreshed == [{"t"}]
    await world.fetcher.close()


async def near() -> tuple[World, Call]:
    """Returns a world whose follower 3 of partition C is closer than leader 2, and the call waiting at the follower."""
    world = World(client_rack="here")
    world.client.lead({0: 1, 1: 1, 2: 2}, also=(3,))
    await world.pump()
    assert world.open_at(2).request.rack_id == "here"
    await world.open_at(2).answer({C: part(preferred_read_replica=3)})
    return world, world.open_at(3)


@scenario
async def test_the_preferred_read_replica_gets_the_fetches():
    world, call = await near()
    assert (call.asked, epochs(call), call.request.rack_id) == ({C: 0}, {C: (7, -1)}, "here")
    assert [call.node_id for call in world.open] == [1, 3]
    await call.answer({C: batch(0, 3, leader_epoch=7)})
    await world.read(C, 3, 7)
    assert world.open_at(3).asked == {C: 3}
    await world.fetcher.close()


@scenario
async def test_an_offset_out_of_range_on_the_preferred_replica_is_first_fetched_from_the_leader():
    world, call = await near()
    await call.answer({C: ErrorCode.OFFSET_OUT_OF_RANGE})
    again = world.open_at(2)
    assert (again.asked, again.request.rack_id) == ({C: 0}, ""), "or it would be sent back at once"
    assert world.subscription.require(C).state is PositionState.FETCHING
    await again.answer({C: ErrorCode.OFFSET_OUT_OF_RANGE})
    assert world.subscription.resetting() == {C: EARLIEST_TIMESTAMP}
    await world.fetcher.close()


@scenario
async def test_fetches_return_to_the_leader_when_the_preferred_replica_fails():
    world, call = await near()
    await call.fail(ErrorCode.NETWORK_EXCEPTION)
    await until(lambda: any(call.node_id == 2 for call in world.open))
    assert world.open_at(2).request.rack_id == ""
    assert world.client.refreshed == [{"t"}]
    assert world.fetcher.take_failure() is None
    await world.fetcher.close()


@scenario
async def test_a_preferred_replica_missing_in_the_metadata_is_not_used():
    world = World(client_rack="here")
    await world.pump()
    await world.open_at(2).answer({C: part(preferred_read_replica=3)})
    assert world.open_at(2).request.rack_id == ""
    assert world.client.refreshed == [{"t"}]
    await world.fetcher.close()


@scenario
async def test_after_a_divergence_on_the_preferred_replica_the_leader_gets_the_fetch():
    world, call = await near()
    await call.answer({C: batch(0, 3, leader_epoch=7)})
    await world.read(C, 3, 7)
    await world.open_at(3).answer({C: part(diverging=broker_pb2.DivergingEpoch(epoch=6, end_offset=1))})
    world.check_leaders()
    world.subscription.complete_validation(C, 3, 7, current_leader_epoch=7)
    await world.pump()
    assert world.open_at(2).asked == {C: 3}
    await world.fetcher.close()


@scenario
async def test_an_unauthorized_topic_is_an_error_of_every_poll():
    world = World()
    world.client.cluster = ClusterView(topic_errors={"t": ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    world.client.backoff = Backoff(initial_ms=0, max_ms=0)
    for _ in range(2):
        await world.pump()
        assert isinstance(world.fetcher.take_failure(), TopicAuthorizationFailedError)
        assert world.progress, "a poll that waits has to hear of it"
    assert {"t"} in world.client.refreshed
    await world.fetcher.close()


@scenario
async def test_an_unknown_topic_is_not_an_error_because_it_may_be_created():
    world = World()
    world.client.cluster = ClusterView(topic_errors={"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    await world.pump()
    assert world.fetcher.take_failure() is None
    await world.fetcher.close()


@scenario
async def test_closing_does_not_wait_for_metadata():
    world = World(leaders={0: -1, 1: -1, 2: -1})
    asked = asyncio.Event()

    async def never(topics: set[str]) -> None:
        asked.set()
        await asyncio.Event().wait()

    world.client.refresh_metadata = never
    await world.pump()
    await asked.wait()
    async with asyncio.timeout(60):
        await world.fetcher.close()
