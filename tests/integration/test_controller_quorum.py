"""Three controllers, a broker and a coordinator as processes: what is acknowledged survives the loss of any minority.

The history is checked by name: each topic belongs to one worker, is created once and deleted once. An acknowledged
creation is seen by every later read until its deletion is asked for, an acknowledged deletion by every later read.
An operation whose outcome is not known (the controller was killed, or did not answer in time) takes its topic out of
the check: it may happen at any later time.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import pathlib
import random
import signal
import statistics
import time
from collections.abc import Iterator

import grpc
import pytest
from controller_quorum import Quorum, quorum_processes
from grpc import aio

from klamm import Admin, Consumer, NewTopic, Producer
from klamm.errors import ErrorCode
from klamm.wire.service import ADMIN, Stub
from klamm.wire.v1 import controller_pb2 as pb

CALL_TIMEOUT_S = 1.0
UNKNOWN = None
CHANNEL_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 50),
]


class QuorumClient:
    """Finds the active controller; never repeats a call that may have had an effect."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = addresses
        self._channels = {each: aio.insecure_channel(each, options=CHANNEL_OPTIONS) for each in addresses}
        self._asked = addresses[0]

    async def call(self, method: str, request: object) -> object:
        """The answer of an active controller, or UNKNOWN."""
        while True:
            stub = Stub(self._channels[self._asked], ADMIN)
            try:
                response = await getattr(stub, method)(request, timeout=CALL_TIMEOUT_S)
            except grpc.RpcError as error:
                self._turn()
                if "refused" in (error.details() or ""):
                    # Nobody was there to do anything.
                    await asyncio.sleep(0.01)
                    continue
                return UNKNOWN
            if response.error_code == ErrorCode.REQUEST_TIMED_OUT:
                return UNKNOWN
            if response.error_code != ErrorCode.NOT_CONTROLLER:
                return response
            named = f"{response.controller.host}:{response.controller.port}"
            if named in self._addresses:
                self._asked = named
            else:
                self._turn()
            await asyncio.sleep(0.01)

    def _turn(self) -> None:
        following = self._addresses.index(self._asked) + 1
        self._asked = self._addresses[following % len(self._addresses)]

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()


class History:
    """What was acknowledged, and when."""

    def __init__(self) -> None:
        self.alive: set[str] = set()
        self.dead: set[str] = set()
        self.unknown: set[str] = set()
        self.acknowledged_s: list[float] = []
        self._acknowledged = asyncio.Event()

    def acknowledge(self) -> None:
        self.acknowledged_s.append(time.monotonic())
        self._acknowledged.set()

    async def wait_for_acknowledgement(self, since_s: float) -> None:
        """Until there is one later than that moment; raises TimeoutError after ten seconds."""
        async with asyncio.timeout(10):
            while not self.acknowledged_s or self.acknowledged_s[-1] <= since_s:
                self._acknowledged.clear()
                await self._acknowledged.wait()

    def check(self, seen: set[str]) -> None:
        assert self.alive <= seen, f"lost: {sorted(self.alive - seen)}"
        assert not self.dead & seen, f"back from the dead: {sorted(self.dead & seen)}"

    def outage_s(self, since_s: float) -> float:
        """The longest time without an acknowledgement from that moment on."""
        times_s = [since_s, *(at for at in self.acknowledged_s if at > since_s)]
        return max(later - before for before, later in itertools.pairwise(times_s))


async def administer(client: QuorumClient, history: History, prefix: str) -> None:
    """Creates, reads and deletes topics of its own until cancelled."""
    rng = random.Random(prefix)
    mine: list[str] = []
    for number in itertools.count():
        await asyncio.sleep(0.005)
        if mine and rng.random() < 0.4:
            await _delete(client, history, mine.pop(rng.randrange(len(mine))))
            continue
        name = f"{prefix}-{number}"
        if await _create(client, history, name):
            mine.append(name)
            await _read(client, history, name)


async def _create(client: QuorumClient, history: History, name: str) -> bool:
    topic = pb.NewTopic(name=name, partition_count=1, replication_factor=1)
    history.unknown.add(name)
    response = await client.call("create_topics", pb.CreateTopicsRequest(topics=[topic], timeout_ms=900))
    if response is UNKNOWN:
        return False
    assert response.topics[0].error_code == 0, response
    history.unknown.discard(name)
    history.alive.add(name)
    history.acknowledge()
    return True


async def _delete(client: QuorumClient, history: History, name: str) -> None:
    history.alive.discard(name)
    history.unknown.add(name)
    response = await client.call("delete_topics", pb.DeleteTopicsRequest(topics=[name], timeout_ms=900))
    if response is not UNKNOWN:
        assert response.results[0].error_code == 0, response
        history.unknown.discard(name)
        history.dead.add(name)
        history.acknowledge()


async def _read(client: QuorumClient, history: History, name: str) -> None:
    response = await client.call("describe_topics", pb.DescribeTopicsRequest(topics=[name]))
    if response is not UNKNOWN:
        assert response.topics[0].error_code == 0, f"{name} was acknowledged, then not seen"


async def seen_topics(client: QuorumClient) -> set[str]:
    while (response := await client.call("describe_topics", pb.DescribeTopicsRequest())) is UNKNOWN:
        pass
    return {topic.name for topic in response.topics}


@contextlib.asynccontextmanager
async def load(quorum: Quorum, history: History, worker_count: int = 3):
    """Administers meanwhile; at the end everything acknowledged is checked, at every controller."""
    addresses = [each.address for each in quorum.controllers.values()]
    clients = [QuorumClient(addresses) for _ in range(worker_count + 1)]
    workers = [
        asyncio.create_task(administer(client, history, f"w{number}")) for number, client in enumerate(clients[1:])
    ]
    try:
        yield
        for worker in workers:
            assert not worker.done(), worker.exception()
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        history.check(await seen_topics(clients[0]))
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        for client in clients:
            await client.close()


@pytest.fixture
def quorum(tmp_path: pathlib.Path) -> Iterator[Quorum]:
    """Started, with a leader and a live broker."""
    # A snapshot every 20 kB: those who come back late are sent one.
    with quorum_processes(tmp_path, metadata_log_max_record_bytes_between_snapshots="20000") as started:
        started.start()
        with Admin(bootstrap_servers=started.broker.address, retry_backoff_max_ms=100) as admin:
            admin.create_topics([NewTopic("first", partition_count=1)])
        yield started


async def ended(quorum: Quorum, node_id: int, number: signal.Signals) -> int:
    return await asyncio.to_thread(quorum.controllers[node_id].end, number)


async def leader_of(quorum: Quorum, but: int | None = None) -> int:
    return (await asyncio.to_thread(quorum.wait_leader, but=but)).node_id


async def describe(quorum: Quorum) -> pb.DescribeQuorumResponse:
    """The leader's view, once all three have been heard."""
    while True:
        described = await asyncio.to_thread(quorum.describe, await leader_of(quorum))
        replicas = described.replicas if described is not None else ()
        if described is not None and len(replicas) == 3 and all(replica.silent_ms < 1_000 for replica in replicas):
            return described
        await asyncio.sleep(0.05)


async def all_caught_up(quorum: Quorum) -> None:
    """Every voter has everything that was committed when this was called."""
    wanted = (await describe(quorum)).high_watermark
    while True:
        described = await describe(quorum)
        if min(replica.end_index for replica in described.replicas) >= wanted:
            return
        await asyncio.sleep(0.05)


@pytest.mark.slow
def test_every_controller_says_who_leads(quorum: Quorum) -> None:
    leader = quorum.wait_leader()
    asyncio.run(all_caught_up(quorum))
    with Admin(bootstrap_servers=quorum.broker.address) as admin:
        described = admin.describe_quorum()
        assert described.leader_id == leader.node_id
        assert [(each.node_id, each.is_voter) for each in described.replicas] == [(1, True), (2, True), (3, True)]
        assert admin.describe_cluster().controller_id == leader.node_id
    for node_id in quorum.controllers.keys() - {leader.node_id}:
        answer = quorum.describe(node_id)
        assert answer is not None
        assert (answer.error_code, answer.controller.port) == (ErrorCode.NOT_CONTROLLER, leader.port)


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_leaders_are_killed(
    quorum: Quorum, capsys: pytest.CaptureFixture[str]
) -> None:
    outages_s: list[float] = []

    async def run() -> None:
        history = History()
        async with load(quorum, history):
            for _ in range(8):
                leader = await leader_of(quorum)
                await asyncio.sleep(0.3)
                killed_s = time.monotonic()
                await ended(quorum, leader, signal.SIGKILL)
                await leader_of(quorum, but=leader)
                await asyncio.sleep(0.3)
                await history.wait_for_acknowledgement(killed_s)
                outages_s.append(history.outage_s(killed_s))
                quorum.controllers[leader].start()
                await all_caught_up(quorum)
        with capsys.disabled():
            print(f"\nacknowledged={len(history.acknowledged_s)} unknown={len(history.unknown)}", end=" ")

    asyncio.run(run())
    p99_s = statistics.quantiles(outages_s, n=100, method="inclusive")[98]
    with capsys.disabled():
        print(f"outages p50={statistics.median(outages_s):.3f}s p99={p99_s:.3f}s max={max(outages_s):.3f}s")
    assert max(outages_s) < 10


@pytest.mark.slow
def test_a_leader_that_stood_still_neither_decides_nor_answers_from_the_past(quorum: Quorum) -> None:
    async def run() -> None:
        history = History()
        async with load(quorum, history):
            for _ in range(3):
                leader = await leader_of(quorum)
                quorum.controllers[leader].freeze()
                try:
                    stood_still_s = time.monotonic()
                    await leader_of(quorum, but=leader)
                    await asyncio.sleep(0.5)
                finally:
                    quorum.controllers[leader].thaw()
                await all_caught_up(quorum)
                await history.wait_for_acknowledgement(stood_still_s)
                assert history.outage_s(stood_still_s) < 10

    asyncio.run(run())


@pytest.mark.slow
def test_a_leader_that_is_stopped_hands_over_before_it_ends(quorum: Quorum, capsys: pytest.CaptureFixture[str]) -> None:
    outages_s: list[float] = []

    async def run() -> None:
        history = History()
        async with load(quorum, history):
            for _ in range(3):
                leader = await leader_of(quorum)
                stopped_s = time.monotonic()
                assert await ended(quorum, leader, signal.SIGTERM) == 0
                await leader_of(quorum, but=leader)
                await history.wait_for_acknowledgement(stopped_s)
                outages_s.append(history.outage_s(stopped_s))
                quorum.controllers[leader].start()
                await all_caught_up(quorum)

    asyncio.run(run())
    with capsys.disabled():
        print(f"\nhandovers: {', '.join(f'{each:.3f}s' for each in outages_s)}")
    assert min(outages_s) < 0.4, "none was faster than an election"


@pytest.mark.slow
def test_records_flow_while_controllers_come_and_go(quorum: Quorum) -> None:
    servers = {"bootstrap_servers": quorum.broker.address}
    with (
        Producer(**servers) as producer,
        Consumer(**servers, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer,
    ):
        consumer.subscribe(["first"])
        read: list[bytes] = []

        def flow(values: list[bytes]) -> None:
            for value in values:
                producer.send("first", value)
            producer.flush()
            until_s = time.monotonic() + 30
            while not set(values) <= set(read) and time.monotonic() < until_s:
                read.extend(each.value for records in consumer.poll(timeout_ms=200).values() for each in records)
            assert set(values) <= set(read)
            consumer.commit()

        flow([b"before"])
        for round_ in range(2):
            leader = quorum.wait_leader()
            leader.end(signal.SIGKILL)
            flow([b"during-%d-%d" % (round_, number) for number in range(20)])
            quorum.wait_leader()
            with Admin(**servers, retry_backoff_max_ms=100) as admin:
                admin.create_topics([NewTopic(f"topic-{round_}", partition_count=1)])
            producer.send(f"topic-{round_}", b"x").result(timeout=30)
            leader.start()
            asyncio.run(all_caught_up(quorum))
        assert sorted(read) == sorted(set(read)), "an election is no reason to read anything twice"
