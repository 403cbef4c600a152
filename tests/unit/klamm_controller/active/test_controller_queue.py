"""Tests the controller over a log whose commits the test controls."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.wire.v1.controller_pb2 import CreateTopicsRequest, NewTopic
from klamm.wire.v1.metadata_pb2 import MetadataBatch
from klamm_controller.active.committed_tail import CommittedTail
from klamm_controller.active.controller import Controller
from klamm_controller.metadata.decision import Decision
from klamm_controller.metadata.topics import PARTITIONS_PER_EVENT, TopicCreation
from klamm_server.runtime.event_queue import EventQueue
from tests.support.waiting import settle
from tests.support.whole_decisions import handle_create_topics


class ManualLog:
    """A MetadataLog whose entries commit when the test calls `commit`."""

    def __init__(self, end_index: int) -> None:
        self.is_leader = False
        self.term = 1
        self.snapshots = []
        self.pending = []
        self._end_index = end_index

    def start(self, listener):
        self.listener = listener
        self.claim()

    def claim(self):
        self.is_leader = True
        self.listener.on_claimed()

    def resign(self):
        """Makes the log resign. Another leader may still commit the appended entries."""
        self.is_leader = False
        self.listener.on_resigned()

    def append(self, records):
        entry = MetadataBatch(
            term=1, base_index=self._end_index, end_index=self._end_index + len(records), records=records
        )
        self._end_index = entry.end_index
        self.pending.append(entry)
        return entry

    def commit(self, count=None):
        count = len(self.pending) if count is None else count
        entries, self.pending = self.pending[:count], self.pending[count:]
        self.listener.on_committed(entries)

    def save_snapshot(self, image):
        self.snapshots.append(image)

    async def confirm_leadership(self):
        raise AssertionError("not asked for here")

    async def stop(self):
        self.is_leader = False


class StoppedClock:
    """A clock that stands at 0, so that a turn handles all waiting events on any machine."""

    def wall_ms(self):
        return 0

    def monotonic_ms(self):
        return 0


class Fixture:
    def __init__(self, cluster) -> None:
        self.cluster = cluster
        self.queue = EventQueue("controller", capacity=10, clock=StoppedClock())
        self.log = ManualLog(cluster.image.end_index)
        tail = CommittedTail(100_000, cluster.image.end_index)
        self.controller = Controller(log=self.log, queue=self.queue, image=cluster.image, tail=tail)
        self.told = []

    def start(self):
        self.controller.start(
            on_claimed=lambda: self.told.append("claimed"), on_resigned=lambda: self.told.append("resigned")
        )

    def create(self, name, **kwargs):
        request = CreateTopicsRequest(topics=[NewTopic(name=name, partition_count=1, replication_factor=1)])
        return asyncio.ensure_future(
            self.controller.submit(
                f"create {name}",
                lambda image: handle_create_topics(request, image, self.cluster.policy, random.Random(1)),
                **kwargs,
            )
        )

    async def turn(self):
        """Runs the loop until callers have submitted, the queue has handled the events, and callers have results."""
        await settle()
        self.queue.turn()
        await settle()
        self.controller.check_invariants()


@pytest.fixture
def run(one_broker):
    def runner(body):
        async def main():
            fixture = Fixture(one_broker)
            fixture.start()
            await body(fixture)

        asyncio.run(main())

    return runner


def codes(future):
    return [topic.error_code for topic in future.result().topics]


def test_a_reply_waits_until_its_records_commit(run):
    async def body(f):
        create = f.create("a")
        await f.turn()
        assert not create.done()
        assert f.controller.committed.topic("a") is None
        assert f.controller.appended.topic("a") is not None
        f.log.commit()
        await settle()
        assert codes(create) == [0]
        assert f.controller.committed is f.controller.appended

    run(body)


def test_a_refusal_waits_until_the_records_that_caused_it_commit(run):
    """If the first creation were lost, "exists already" would be wrong."""

    async def body(f):
        first = f.create("a")
        await f.turn()
        second = f.create("a")
        await f.turn()
        assert not second.done()
        f.log.commit()
        await settle()
        assert codes(first) == [0]
        assert codes(second) == [ErrorCode.TOPIC_ALREADY_EXISTS]

    run(body)


def test_a_partial_commit_releases_only_the_replies_it_covers(run):
    async def body(f):
        creates = [f.create(name) for name in "abc"]
        await f.turn()
        f.log.commit(2)
        await settle()
        assert [create.done() for create in creates] == [True, True, False]
        assert f.controller.committed.topic("b") is not None
        assert f.controller.committed.topic("c") is None
        f.controller.check_invariants()
        f.log.commit()
        await settle()
        assert creates[2].done()

    run(body)


def test_a_request_cancelled_before_its_turn_writes_nothing(run):
    async def body(f):
        create = f.create("a")
        await settle()
        create.cancel()
        await f.turn()
        assert f.log.pending == []

    run(body)


def test_a_request_cancelled_after_its_turn_does_not_affect_others(run):
    async def body(f):
        gone, stays = f.create("a"), f.create("b")
        await f.turn()
        gone.cancel()
        await settle()
        f.log.commit()
        await settle()
        assert codes(stays) == [0]
        assert f.controller.committed.topic("a") is not None

    run(body)


def test_urgent_requests_are_handled_first(run):
    async def body(f):
        order = []

        def handle(name):
            return lambda image: order.append(name) or Decision(reply=name)

        slow = asyncio.ensure_future(f.controller.submit("admin", handle("admin")))
        beat = asyncio.ensure_future(f.controller.submit("heartbeat", handle("heartbeat"), urgent=True))
        await f.turn()
        assert order == ["heartbeat", "admin"]
        assert (await slow, await beat) == ("admin", "heartbeat")

    run(body)


def test_requests_to_an_inactive_controller_are_refused(one_broker):
    async def body():
        f = Fixture(one_broker)
        with pytest.raises(EXCEPTIONS[ErrorCode.NOT_CONTROLLER]):
            await f.create("a")
        f.start()
        f.controller.resign()
        with pytest.raises(EXCEPTIONS[ErrorCode.NOT_CONTROLLER]):
            await f.create("a")

    asyncio.run(body())


def test_a_due_snapshot_contains_only_committed_records(run):
    async def body(f):
        f.create("a")
        f.create("b")
        await f.turn()
        f.log.commit(1)
        f.controller.on_snapshot_due()
        (image,) = f.log.snapshots
        assert image is f.controller.committed
        assert image.topic("a") is not None
        assert image.topic("b") is None
        f.log.commit()

    run(body)


def test_wait_beyond_ends_with_a_commit_or_a_resignation(run):
    async def body(f):
        index = f.controller.committed.end_index
        waiting = asyncio.ensure_future(f.controller.wait_beyond(index))
        f.create("a")
        await f.turn()
        assert not waiting.done()
        f.log.commit()
        assert await waiting

        more = asyncio.ensure_future(f.controller.wait_beyond(f.controller.committed.end_index))
        await settle()
        f.controller.resign()
        assert not await more

    run(body)


def test_entries_after_returns_only_committed_entries(run):
    async def body(f):
        start = f.controller.committed.end_index
        for name in "abc":
            f.create(name)
        await f.turn()
        f.log.commit(2)
        entries = f.controller.entries_after(start)
        assert [entry.base_index for entry in entries] == [start, start + 2]
        f.log.commit()
        assert f.controller.entries_after(start + 4)[0].base_index == start + 4
        assert f.controller.entries_after(start + 1) is None

    run(body)


def refusal(future):
    return future.exception().code


def test_uncommitted_records_are_dropped_from_the_image_on_resignation(run):
    async def body(f):
        f.create("a")
        await f.turn()
        f.log.commit()
        lost = f.create("b")
        await f.turn()
        f.log.resign()
        assert f.told == ["claimed", "resigned"]
        assert f.controller.appended is f.controller.committed
        assert f.controller.appended.topic("a") is not None
        await settle()
        assert not lost.done(), "it may commit yet"
        f.controller.on_new_term()
        await settle()
        assert refusal(lost) is ErrorCode.NOT_CONTROLLER
        f.controller.check_invariants()

    run(body)


def test_a_request_of_the_former_leader_that_the_next_leader_commits_is_acknowledged(run):
    async def body(f):
        kept, lost = f.create("a"), f.create("b")
        await f.turn()
        f.log.resign()
        f.log.commit(1)
        f.controller.on_new_term()
        await settle()
        assert codes(kept) == [0]
        assert refusal(lost) is ErrorCode.NOT_CONTROLLER
        assert f.controller.committed.topic("a") is not None
        assert f.controller.committed.topic("b") is None
        f.controller.check_invariants()

    run(body)


def test_a_pending_request_times_out_if_a_snapshot_hides_its_outcome(run):
    async def body(f):
        open_ = f.create("a")
        await f.turn()
        f.log.resign()
        f.cluster.create_one("z")
        f.controller.on_restored(f.cluster.image)
        await settle()
        assert refusal(open_) is ErrorCode.REQUEST_TIMED_OUT
        assert f.controller.committed is f.cluster.image
        assert f.controller.entries_after(0) is None
        f.controller.check_invariants()

    run(body)


def test_a_queued_request_is_refused_after_the_leader_resigns(run):
    async def body(f):
        create = f.create("a")
        await settle()
        f.log.resign()
        await f.turn()
        assert refusal(create) is ErrorCode.NOT_CONTROLLER
        assert f.log.pending == []

    run(body)


def test_a_new_leader_continues_from_the_records_it_replicated(run):
    async def body(f):
        f.create("a")
        await f.turn()
        f.log.resign()
        f.log.commit()
        f.log.claim()
        assert f.told == ["claimed", "resigned", "claimed"]
        again = f.create("a")
        await f.turn()
        await settle()
        assert codes(again) == [ErrorCode.TOPIC_ALREADY_EXISTS]

    run(body)


def create_in_parts(f, *names):
    """Creates topics so large that each one is a part."""
    topics = [NewTopic(name=name, partition_count=PARTITIONS_PER_EVENT, replication_factor=1) for name in names]
    policy = replace(f.cluster.policy, partitions_per_request_max=10_000)
    creation = TopicCreation(CreateTopicsRequest(topics=topics), policy, random.Random(1))
    return asyncio.ensure_future(f.controller.submit_parts("create", creation.parts()))


def test_other_requests_are_handled_between_the_parts_of_a_big_request(run):
    async def body(f):
        order = []

        def note(name):
            return lambda image: order.append((name, len(image.topics_by_name))) or Decision(reply=name)

        big = create_in_parts(f, "a", "b", "c")
        await settle()
        beat = asyncio.ensure_future(f.controller.submit("heartbeat", note("heartbeat"), urgent=True))
        other = asyncio.ensure_future(f.controller.submit("other", note("other")))
        for _ in range(4):
            await f.turn()
        assert order == [("heartbeat", 0), ("other", 1)]
        assert not big.done()
        f.log.commit()
        await settle()
        assert [topic.name for reply in big.result() for topic in reply.topics] == ["a", "b", "c"]
        assert beat.result(), other.result()

    run(body)


def test_a_big_request_is_answered_when_its_last_part_has_committed(run):
    async def body(f):
        big = create_in_parts(f, "a", "b")
        for _ in range(3):
            await f.turn()
        f.log.commit(1)
        await settle()
        assert not big.done()
        f.log.commit()
        await settle()
        assert len(big.result()) == 2

    run(body)


def test_a_big_request_without_a_committed_part_is_refused_as_not_controller(run):
    async def body(f):
        big = create_in_parts(f, "a", "b")
        for _ in range(3):
            await f.turn()
        f.log.resign()
        f.controller.on_new_term()
        await settle()
        assert refusal(big) is ErrorCode.NOT_CONTROLLER

    run(body)


def test_a_big_request_that_was_partly_committed_times_out(run):
    async def body(f):
        committed, under_way = create_in_parts(f, "a", "b"), create_in_parts(f, "c", "d")
        await f.turn()
        f.log.commit(1)
        f.log.resign()
        await f.turn()
        f.controller.on_new_term()
        await settle()
        assert refusal(committed) is ErrorCode.REQUEST_TIMED_OUT
        assert refusal(under_way) is ErrorCode.REQUEST_TIMED_OUT

    run(body)
