"""Tests sessions on a clock that the test moves."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from klamm.errors import ErrorCode
from klamm.wire.v1.metadata_pb2 import MetadataBatch
from klamm_controller.active.committed_tail import CommittedTail
from klamm_controller.active.controller import Controller
from klamm_controller.active.leader_balance import LeaderBalance
from klamm_controller.active.liveness import BROKERS, COORDINATORS, LATE_MS, Liveness
from klamm_controller.active.sweeper import Sweeper
from klamm_controller.log.port import MetadataLog
from klamm_controller.metadata.brokers import handle_broker_session_end
from klamm_controller.metadata.unclean_recovery import handle_replica_logs
from klamm_server.metrics.prometheus import registry
from klamm_server.runtime.event_queue import EventQueue

TIMEOUT_MS = 9_000
LOSS_MS = 500


class FakeClock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


class InstantLog:
    """A MetadataLog that commits in the loop's next turn. `held` delays entries."""

    def __init__(self, end_index: int) -> None:
        self.is_leader = False
        self.term = 1
        self.held = False
        self.refuses = False
        self.appended = 0
        self.entries: list[MetadataBatch] = []
        self._end_index = end_index

    def start(self, listener):
        self.listener = listener
        self.is_leader = True
        listener.on_claimed()

    def resign(self):
        self.is_leader = False
        self.listener.on_resigned()

    def append(self, records):
        if self.refuses:
            raise ErrorCode.THROTTLING_QUOTA_EXCEEDED.exception()
        entry = MetadataBatch(
            term=1, base_index=self._end_index, end_index=self._end_index + len(records), records=records
        )
        self._end_index = entry.end_index
        self.appended += 1
        self.entries.append(entry)
        if not self.held:
            asyncio.get_running_loop().call_soon(self.listener.on_committed, [entry])
        return entry

    def save_snapshot(self, image):
        raise AssertionError("never due")

    async def confirm_leadership(self):
        raise AssertionError("not asked for here")

    async def stop(self):
        self.is_leader = False


class World:
    def __init__(self, cluster) -> None:
        self.cluster = cluster
        self.clock = FakeClock()
        self.queue = EventQueue("controller", capacity=100, clock=self.clock)
        self.log: MetadataLog = InstantLog(cluster.image.end_index)
        tail = CommittedTail(100_000, cluster.image.end_index)
        self.controller = Controller(log=self.log, queue=self.queue, image=cluster.image, tail=tail)
        self.brokers = self._liveness(BROKERS)
        self.coordinators = self._liveness(COORDINATORS)
        self.sweeper = Sweeper(self.controller, self.queue, self.clock)
        self.controller.start(on_claimed=self._start, on_resigned=self._stop, on_sweep=self.sweeper.add)

    def _start(self):
        self.brokers.start()
        self.coordinators.start()
        self.sweeper.start()

    def _stop(self):
        self.brokers.stop()
        self.coordinators.stop()
        self.sweeper.stop()

    def _liveness(self, kind):
        return Liveness(
            kind,
            self.controller,
            self.queue,
            self.clock,
            session_timeout_ms=TIMEOUT_MS,
            connection_loss_timeout_ms=LOSS_MS,
        )

    def hold(self, broker_id):
        epoch = self.controller.committed.brokers[broker_id].broker_epoch
        return asyncio.ensure_future(self.brokers.hold(broker_id, epoch))

    async def pass_ms(self, duration_ms, step_ms=500):
        for _ in range(duration_ms // step_ms):
            self.clock.now_ms += step_ms
            await self.settle()

    async def settle(self):
        for _ in range(6):
            await asyncio.sleep(0)
            self.queue.turn()
        self.cluster.image = self.controller.committed

    async def answer(self, coroutine):
        task = asyncio.ensure_future(coroutine)
        await self.settle()
        assert task.done(), "it waits for something"
        return task.result()

    async def beat(self, broker_id):
        return await self.answer(self.brokers.heartbeat(self.cluster.heartbeat(broker_id)))

    def fenced(self, broker_id):
        return self.controller.committed.brokers[broker_id].fenced


def run(cluster, body):
    async def main():
        await body(World(cluster))

    asyncio.run(main())


def test_a_silent_broker_is_fenced_at_session_end_and_unfenced_by_a_heartbeat(three_brokers):
    async def body(world):
        for _ in range(6):
            await world.pass_ms(2_000)
            await world.beat(1)
            await world.beat(2)
        assert [world.fenced(i) for i in (1, 2, 3)] == [False, False, True]
        assert not (await world.beat(3)).fenced
        assert not world.fenced(3)

    run(three_brokers, body)


def test_a_session_ends_exactly_at_its_timeout(one_broker):
    async def body(world):
        await world.pass_ms(TIMEOUT_MS - 1, step_ms=1)
        assert not world.fenced(1)
        await world.pass_ms(1, step_ms=1)
        assert world.fenced(1)

    run(one_broker, body)


def test_a_lost_connection_fences_the_broker_after_the_loss_timeout(three_brokers):
    async def body(world):
        held = world.hold(1)
        await world.settle()
        held.cancel()
        await world.settle()
        await world.pass_ms(LOSS_MS - 1, step_ms=1)
        assert not world.fenced(1)
        await world.pass_ms(1, step_ms=1)
        assert [world.fenced(i) for i in (1, 2, 3)] == [True, False, False]
        await world.pass_ms(1_000)
        assert not (await world.beat(1)).fenced

    run(three_brokers, body)


def test_a_heartbeat_after_a_lost_connection_keeps_the_session(one_broker):
    async def body(world):
        held = world.hold(1)
        await world.settle()
        held.cancel()
        await world.settle()
        await world.pass_ms(LOSS_MS - 1, step_ms=1)
        await world.beat(1)
        await world.pass_ms(LOSS_MS, step_ms=1)
        assert not world.fenced(1)

    run(one_broker, body)


def test_a_connection_lost_while_the_process_was_paused_fences_no_broker(one_broker):
    async def body(world):
        held = world.hold(1)
        await world.settle()
        held.cancel()
        await world.settle()
        world.clock.now_ms += LOSS_MS + LATE_MS + 1
        await world.settle()
        assert not world.fenced(1)

    run(one_broker, body)


def test_a_lost_connection_of_an_earlier_broker_epoch_is_ignored(one_broker):
    async def body(world):
        epoch = world.controller.committed.brokers[1].broker_epoch
        assert world.brokers.may_hold(1, epoch)
        assert not world.brokers.may_hold(1, epoch - 1)
        assert not world.brokers.may_hold(2, epoch)
        held = asyncio.ensure_future(world.brokers.hold(1, epoch - 1))
        await world.settle()
        held.cancel()
        await world.pass_ms(LOSS_MS)
        assert not world.fenced(1)

    run(one_broker, body)


def test_a_controller_that_resigns_ends_its_broker_connections(one_broker):
    async def body(world):
        held = world.hold(1)
        await world.settle()
        assert not held.done()
        world.log.resign()
        await world.settle()
        assert held.done()
        assert held.exception() is None

    run(one_broker, body)


def test_after_a_controller_start_each_broker_has_a_full_session(one_broker):
    async def body(world):
        assert not world.fenced(1)
        await world.pass_ms(TIMEOUT_MS - 1_000)
        assert not world.fenced(1)

    run(one_broker, body)


def test_a_heartbeat_without_a_change_is_answered_immediately_without_a_record(one_broker):
    async def body(world):
        world.log.held = True
        task = asyncio.ensure_future(world.brokers.heartbeat(world.cluster.heartbeat(1)))
        await asyncio.sleep(0)
        assert task.done(), "answered without the queue's turn"
        assert world.log.appended == 0

    run(one_broker, body)


def test_a_heartbeat_waits_for_an_uncommitted_change_of_its_broker(one_broker):
    """An answer from the committed state would call the broker unfenced while its fencing is about to commit."""

    async def body(world):
        world.log.held = True
        await world.pass_ms(TIMEOUT_MS)
        task = asyncio.ensure_future(world.brokers.heartbeat(world.cluster.heartbeat(1)))
        await world.settle()
        assert not task.done()
        assert world.log.appended == 2, "the fencing, and the return"
        task.cancel()

    run(one_broker, body)


def test_a_controller_that_was_paused_fences_no_broker(three_brokers):
    async def body(world):
        await world.pass_ms(2_000)
        world.clock.now_ms += 10 * TIMEOUT_MS
        await world.settle()
        assert not any(world.fenced(i) for i in (1, 2, 3))
        await world.pass_ms(TIMEOUT_MS + LATE_MS)
        assert all(world.fenced(i) for i in (1, 2, 3)), "silence that was witnessed counts again"

    run(three_brokers, body)


def test_a_duplicate_broker_registration_is_refused_during_the_session(one_broker):
    async def body(world):
        other = one_broker.broker_request(1, life=1, log_dir_ids=[b"x" * 16])
        refused = await world.answer(world.brokers.register(other))
        assert refused.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        await world.pass_ms(TIMEOUT_MS)
        accepted = await world.answer(world.brokers.register(other))
        assert accepted.error_code == 0
        assert world.controller.committed.brokers[1].broker_epoch == accepted.epoch

    run(one_broker, body)


def test_the_id_of_a_shut_down_broker_can_be_registered_again_immediately(one_broker):
    async def body(world):
        for _ in range(2):
            beat = world.cluster.heartbeat(1, want_shutdown=True)
            reply = await world.answer(world.brokers.heartbeat(beat))
        assert reply.should_shutdown
        other = one_broker.broker_request(1, life=1, log_dir_ids=[b"x" * 16])
        assert (await world.answer(world.brokers.register(other))).error_code == 0

    run(one_broker, body)


def test_a_coordinator_has_its_own_session_beside_the_broker_of_the_same_id(one_broker):
    one_broker.add_coordinator(1)

    async def body(world):
        for _ in range(5):
            await world.pass_ms(2_000)
            await world.beat(1)
        assert not world.fenced(1)
        assert world.controller.committed.coordinators[1].fenced
        beat = world.cluster.coordinator_heartbeat(1)
        assert not (await world.answer(world.coordinators.heartbeat(beat))).fenced

    run(one_broker, body)


@pytest.mark.parametrize("what", ["register", "heartbeat"])
def test_an_inactive_controller_refuses_registrations_and_heartbeats(one_broker, what):
    async def body(world):
        world.controller.resign()
        request = one_broker.broker_request(1, life=3) if what == "register" else one_broker.heartbeat(1)
        with pytest.raises(Exception, match="NOT_CONTROLLER"):
            await world.answer(getattr(world.brokers, what)(request))

    run(one_broker, body)


def test_a_resigned_controller_fences_no_broker_and_restarts_sessions_when_active_again(one_broker):
    async def body(world):
        await world.pass_ms(TIMEOUT_MS - 1_000)
        world.log.resign()
        await world.pass_ms(5 * TIMEOUT_MS)
        assert not world.fenced(1)
        world.log.start(world.controller)
        await world.pass_ms(TIMEOUT_MS - 1_000)
        assert not world.fenced(1), "only silence that this leader has witnessed counts"
        await world.pass_ms(1_000)
        assert world.fenced(1)

    run(one_broker, body)


def test_a_fencing_that_cannot_be_appended_is_retried(one_broker):
    async def body(world):
        world.log.refuses = True
        await world.pass_ms(TIMEOUT_MS + 1_000)
        assert not world.fenced(1)
        world.log.refuses = False
        await world.pass_ms(TIMEOUT_MS)
        assert world.fenced(1)

    run(one_broker, body)


def test_a_broker_with_many_partitions_is_fenced_in_several_events(three_brokers):
    for number in range(6):
        three_brokers.create_by_hand(f"t{number}", *[(1, 2)] * 45)

    async def body(world):
        decided = len(world.log.entries)
        await world.pass_ms(2 * TIMEOUT_MS // 3)
        for broker_id in (2, 3):
            await world.beat(broker_id)
        await world.pass_ms(TIMEOUT_MS // 2)
        tally = three_brokers.image.index.tally(1)
        assert (world.fenced(1), tally.led, tally.in_sync) == (True, 0, 0)
        assert [len(entry.records) for entry in world.log.entries[decided:]] == [101, 100, 70]

    run(three_brokers, body)


def test_a_new_controller_completes_an_unfinished_leader_change(three_brokers):
    three_brokers.create_by_hand("a", (1, 2))
    fence = handle_broker_session_end(1, three_brokers.image).records[:1]
    three_brokers.replay(fence)
    assert three_brokers.partition("a").leader == 1

    async def body(world):
        await world.settle()
        assert (three_brokers.partition("a").leader, three_brokers.partition("a").isr) == (2, (2,))

    run(three_brokers, body)


def test_preferred_leaders_are_elected_after_the_balance_interval(three_brokers):
    three_brokers.create_by_hand("a", (1, 2), (2, 3))
    three_brokers.apply(handle_broker_session_end(1, three_brokers.image))
    three_brokers.beat(1)
    three_brokers.bring_into_sync(1)
    assert three_brokers.partition("a").leader == 2

    async def body(world):
        balance = LeaderBalance(
            world.controller,
            world.queue,
            world.clock,
            interval_ms=5_000,
            percentage=10,
            sweep=world.sweeper.add,
        )
        balance.start()
        await world.pass_ms(4_500)
        assert three_brokers.partition("a").leader == 2
        await world.pass_ms(1_000)
        assert three_brokers.partition("a").leader == 1
        balance.stop()

    run(three_brokers, body)


def test_an_unclean_election_is_counted_and_logged(three_brokers, caplog):
    three_brokers.create_by_hand("a", (1, 2), unclean_leader_election_enable="true")
    for broker_id in (2, 1):
        three_brokers.apply(handle_broker_session_end(broker_id, three_brokers.image))
    counted = registry().get_sample_value("klamm_unclean_leader_elections_total")

    async def body(world):
        await world.settle()
        await world.beat(2)
        report = partial(handle_replica_logs, three_brokers.log_report(2, 0, 10), logs=three_brokers.logs)
        await world.answer(world.controller.submit("ReportReplicaLogs", report))
        assert three_brokers.partition("a").leader == 2

    run(three_brokers, body)
    assert registry().get_sample_value("klamm_unclean_leader_elections_total") == counted + 1
    assert "topic=a partition=0 leader=2 elected uncleanly, records may be lost" in caplog.text
