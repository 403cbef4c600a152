"""Sessions on a clock that the test moves."""

from __future__ import annotations

import asyncio

import pytest

from klamm.errors import ErrorCode
from klamm.wire.v1.metadata_pb2 import MetadataBatch
from klamm_controller.committed_tail import CommittedTail
from klamm_controller.controller import Controller
from klamm_controller.liveness import BROKERS, COORDINATORS, LATE_MS, Liveness
from klamm_controller.log.port import MetadataLog
from klamm_server.event_queue import EventQueue

TIMEOUT_MS = 9_000


class FakeClock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


class InstantLog:
    """A MetadataLog that commits in the loop's next turn; `held` keeps entries back."""

    def __init__(self, end_index: int) -> None:
        self.is_leader = False
        self.leader_id = 1
        self.term = 1
        self.held = False
        self.refuses = False
        self.appended = 0
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
        if not self.held:
            asyncio.get_running_loop().call_soon(self.listener.on_committed, [entry])
        return entry

    def save_snapshot(self, image):
        raise AssertionError("never due")

    async def confirm_leadership(self):
        raise AssertionError("not asked for here")

    def status(self):
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
        self.controller.start(on_claimed=self._start, on_resigned=self._stop)

    def _start(self):
        self.brokers.start()
        self.coordinators.start()

    def _stop(self):
        self.brokers.stop()
        self.coordinators.stop()

    def _liveness(self, kind):
        return Liveness(kind, self.controller, self.queue, self.clock, session_timeout_ms=TIMEOUT_MS)

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


def test_a_silent_broker_is_fenced_when_its_session_ends_and_a_heartbeat_brings_it_back(three_brokers):
    async def body(world):
        for _ in range(6):
            await world.pass_ms(2_000)
            await world.beat(1)
            await world.beat(2)
        assert [world.fenced(i) for i in (1, 2, 3)] == [False, False, True]
        assert not (await world.beat(3)).fenced
        assert not world.fenced(3)

    run(three_brokers, body)


def test_the_session_lasts_to_the_millisecond(one_broker):
    async def body(world):
        await world.pass_ms(TIMEOUT_MS - 1, step_ms=1)
        assert not world.fenced(1)
        await world.pass_ms(1, step_ms=1)
        assert world.fenced(1)

    run(one_broker, body)


def test_after_a_start_everybody_has_a_whole_session(one_broker):
    async def body(world):
        assert not world.fenced(1)
        await world.pass_ms(TIMEOUT_MS - 1_000)
        assert not world.fenced(1)

    run(one_broker, body)


def test_a_heartbeat_that_changes_nothing_writes_nothing_and_waits_for_nothing(one_broker):
    async def body(world):
        world.log.held = True
        task = asyncio.ensure_future(world.brokers.heartbeat(world.cluster.heartbeat(1)))
        await asyncio.sleep(0)
        assert task.done(), "answered without the queue's turn"
        assert world.log.appended == 0

    run(one_broker, body)


def test_a_heartbeat_waits_when_its_broker_is_about_to_change(one_broker):
    """Answered from what has committed, it would tell a broker that it is unfenced while its fencing is on the way."""

    async def body(world):
        world.log.held = True
        await world.pass_ms(TIMEOUT_MS)
        task = asyncio.ensure_future(world.brokers.heartbeat(world.cluster.heartbeat(1)))
        await world.settle()
        assert not task.done()
        assert world.log.appended == 2, "the fencing, and the return"
        task.cancel()

    run(one_broker, body)


def test_a_process_that_stood_still_fences_nobody(three_brokers):
    async def body(world):
        await world.pass_ms(2_000)
        world.clock.now_ms += 10 * TIMEOUT_MS
        await world.settle()
        assert not any(world.fenced(i) for i in (1, 2, 3))
        await world.pass_ms(TIMEOUT_MS + LATE_MS)
        assert all(world.fenced(i) for i in (1, 2, 3)), "silence that was witnessed counts again"

    run(three_brokers, body)


def test_a_duplicate_is_refused_while_the_session_lasts(one_broker):
    async def body(world):
        other = one_broker.broker_request(1, life=1, log_dir_ids=[b"x" * 16])
        refused = await world.answer(world.brokers.register(other))
        assert refused.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        await world.pass_ms(TIMEOUT_MS)
        accepted = await world.answer(world.brokers.register(other))
        assert accepted.error_code == 0
        assert world.controller.committed.brokers[1].broker_epoch == accepted.epoch

    run(one_broker, body)


def test_a_shut_down_broker_makes_room_at_once(one_broker):
    async def body(world):
        for _ in range(2):
            beat = world.cluster.heartbeat(1, want_shutdown=True)
            reply = await world.answer(world.brokers.heartbeat(beat))
        assert reply.should_shutdown
        other = one_broker.broker_request(1, life=1, log_dir_ids=[b"x" * 16])
        assert (await world.answer(world.brokers.register(other))).error_code == 0

    run(one_broker, body)


def test_coordinators_have_sessions_of_their_own(one_broker):
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
def test_an_inactive_controller_answers_neither(one_broker, what):
    async def body(world):
        world.controller.resign()
        request = one_broker.broker_request(1, life=3) if what == "register" else one_broker.heartbeat(1)
        with pytest.raises(Exception, match="NOT_CONTROLLER"):
            await world.answer(getattr(world.brokers, what)(request))

    run(one_broker, body)


def test_who_is_not_active_any_more_fences_nobody_and_starts_afresh_when_it_is_again(one_broker):
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


def test_a_fencing_that_the_log_does_not_take_is_tried_again(one_broker):
    async def body(world):
        world.log.refuses = True
        await world.pass_ms(TIMEOUT_MS + 1_000)
        assert not world.fenced(1)
        world.log.refuses = False
        await world.pass_ms(TIMEOUT_MS)
        assert world.fenced(1)

    run(one_broker, body)
