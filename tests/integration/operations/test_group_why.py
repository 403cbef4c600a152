"""Tests that `klamm groups why` names the cause in its first three lines, in ten prepared situations. It finds nothing
wrong with three healthy groups."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from klamm import Admin, Consumer, NewTopic, Producer, TopicPartition
from klamm.wire.v1.coordinator_pb2 import GroupOffset, OffsetCommitRequest
from tests.support.cli_runner import KlammCommand
from tests.support.coordinator_cluster import cluster as coordinator_cluster
from tests.support.coordinator_cluster import error_of
from tests.support.coordinator_process import CoordinatorProcess
from tests.support.klamm_process import running_cluster
from tests.support.waiting import patience, wait_until

PARTITIONS = 4
MINUTE, HOUR = 60_000, 3_600_000
COMMIT_S = 1.0


def now_ms() -> int:
    return round(time.time() * 1000)


class Reader:
    """A member of a group in a thread of its own. It commits offsets at given rates."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        rates: Mapping[int, int] | None = None,
        begin: int = 0,
        protocol: str = "classic",
        read_committed: bool = False,
    ) -> None:
        """`rates` has the records that it commits each second in each partition. It has read all others."""
        self._rates = rates or {}
        self._begin = begin
        self._began_s = time.monotonic()
        self._is_ended = threading.Event()
        self._consumer = Consumer(
            bootstrap_servers=bootstrap,
            group_id=topic,
            group_protocol=protocol,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed" if read_committed else "read_uncommitted",
        )
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_ended.wait(COMMIT_S):
            self._consumer.poll(0)
            assigned = self._consumer.assignment()
            offsets = {tp: self._position(tp, end) for tp, end in self._consumer.end_offsets(assigned).items()}
            if offsets:
                self._consumer.commit(offsets)

    def _position(self, tp: TopicPartition, end: int) -> int:
        if tp.partition not in self._rates:
            return end
        read = round(self._rates[tp.partition] * (time.monotonic() - self._began_s))
        return min(end, self._begin + read)

    def close(self) -> None:
        self._is_ended.set()
        self._thread.join(patience())
        self._consumer.close()


class World:
    """A cluster, and the situations that are prepared in it. The name of a situation is that of its topic and group."""

    def __init__(self, bootstrap: str, admin: Admin, producer: Producer) -> None:
        self.bootstrap = bootstrap
        self.admin = admin
        self._producer = producer
        self._cleanup: list[Callable[[], None]] = []
        self._is_ended = threading.Event()

    def topic(self, name: str, **configs: str) -> None:
        self.admin.create_topics([NewTopic(name, PARTITIONS, configs=configs)])

    def write(
        self, name: str, counts: Mapping[int, int], *, key: bytes | None = None, ago_ms: int = 5 * MINUTE
    ) -> None:
        for partition, count in counts.items():
            for _ in range(count):
                self._producer.send(name, b"v", key=key, partition=partition, timestamp_ms=now_ms() - ago_ms)
        self._producer.flush()

    def members(self, name: str, count: int, **options: object) -> None:
        for _ in range(count):
            self._cleanup.append(Reader(self.bootstrap, name, **options).close)

    def repeat(self, do: Callable[[], None], pause_s: float) -> None:
        """Calls `do` again and again in a thread, until the end."""

        def run() -> None:
            while not self._is_ended.wait(pause_s):
                do()

        thread = threading.Thread(target=run)
        thread.start()
        self._cleanup.append(lambda: thread.join(patience()))

    def defer(self, do: Callable[[], None]) -> None:
        self._cleanup.append(do)

    def close(self) -> None:
        self._is_ended.set()
        for do in reversed(self._cleanup):
            do()


EVENLY = dict.fromkeys(range(PARTITIONS), 500)
SLOWLY = dict.fromkeys(range(PARTITIONS), 2)


def hot_key(world: World) -> None:
    world.topic("hot-key")
    world.write("hot-key", dict.fromkeys(range(PARTITIONS), 20))
    world.write("hot-key", {2: 1_500}, key=b"cust-6")
    world.members("hot-key", 1, rates={2: 5})


def idle_members(world: World) -> None:
    world.topic("idle-members")
    world.write("idle-members", EVENLY)
    world.members("idle-members", 6, rates=SLOWLY)


def slow_member(world: World) -> None:
    world.topic("slow-member")
    world.write("slow-member", EVENLY)
    world.members("slow-member", PARTITIONS, rates={1: 2})


def burst(world: World) -> None:
    world.topic("burst")
    for minute in range(70, 0, -1):
        world.write("burst", dict.fromkeys(range(PARTITIONS), 15), ago_ms=minute * MINUTE)
    world.repeat(lambda: world.write("burst", dict.fromkeys(range(PARTITIONS), 14), ago_ms=0), 0.5)
    world.members("burst", 1, rates=SLOWLY, begin=70 * 15 - 200)


def open_transaction(world: World) -> None:
    world.topic("open-transaction")
    writer = Producer(bootstrap_servers=world.bootstrap, transactional_id="payments-1", transaction_timeout_ms=900_000)
    writer.init_transactions()
    writer.begin_transaction()
    writer.send("open-transaction", b"v", partition=0, timestamp_ms=now_ms() - 10 * MINUTE).result(patience())
    world.defer(lambda: (writer.abort_transaction(), writer.close())[0])
    world.write("open-transaction", {0: 3_000})
    world.members("open-transaction", 1, rates={0: 0}, read_committed=True)


def stopped(world: World) -> None:
    world.topic("stopped", **{"retention.ms": str(30 * MINUTE)})
    world.write("stopped", EVENLY, ago_ms=10 * MINUTE)
    world.admin.alter_group_offsets("stopped", {TopicPartition("stopped", 0): 100})


def lost(world: World) -> None:
    world.topic("lost")
    world.write("lost", {0: 1_000})
    tp = TopicPartition("lost", 0)
    world.admin.alter_group_offsets("lost", {tp: 10})
    world.admin.delete_records({tp: 900})
    wait_until(lambda: world.admin.describe_group_lag(["lost"])["lost"].lost_count == 890)
    world.members("lost", 1)


def poison(world: World) -> None:
    world.topic("poison")
    world.write("poison", EVENLY)
    world.members("poison", 2, rates={1: 0}, begin=17)


def rebalances(world: World) -> None:
    world.topic("rebalances")
    world.write("rebalances", EVENLY)
    world.members("rebalances", 1, rates=SLOWLY)

    def come_and_go() -> None:
        with Consumer(bootstrap_servers=world.bootstrap, group_id="rebalances", enable_auto_commit=False) as consumer:
            consumer.subscribe(["rebalances"])
            wait_until(lambda: bool(consumer.poll(50)) or bool(consumer.assignment()))

    world.repeat(come_and_go, 0.5)


def healthy(world: World) -> None:
    world.topic("reading")
    world.repeat(lambda: world.write("reading", dict.fromkeys(range(PARTITIONS), 25), ago_ms=0), 0.5)
    world.members("reading", 2)
    world.topic("done")
    world.write("done", EVENLY)
    world.admin.alter_group_offsets("done", {TopicPartition("done", number): 500 for number in range(PARTITIONS)})
    world.topic("spare")
    world.write("spare", EVENLY)
    world.members("spare", PARTITIONS + 1, protocol="consumer")


SITUATIONS = {
    hot_key: ("hot-key", "hot-partition", "hot-key-2 gets 96% of the records of its topic; key cust-6 has 100%"),
    idle_members: ("idle-members", "idle-members", "2 of 6 members have no partition"),
    slow_member: ("slow-member", "slow-member", "% of the unread records"),
    burst: ("burst", "burst", "times as many records are written as in the hour before"),
    open_transaction: ("open-transaction", "open-transaction", "transaction 'payments-1' has been open for 1"),
    stopped: ("stopped", "no-members", "the group has no members, and has committed nothing for"),
    lost: ("lost", "lost", "890 records were deleted before the group read them: lost-0"),
    poison: ("poison", "stuck", "poison-1 stays at offset 17 for"),
    rebalances: ("rebalances", "rebalances", "the group is rebalanced again and again"),
}
HEALTHY = ("reading", "done", "spare")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    settings = {"group.lag.interval.ms": "1000", "group.initial.rebalance.delay.ms": "0"}
    with (
        running_cluster(tmp_path_factory.mktemp("why"), settings) as klamm,
        Admin(bootstrap_servers=klamm.bootstrap) as admin,
        Producer(bootstrap_servers=klamm.bootstrap) as producer,
    ):
        made = World(klamm.bootstrap, admin, producer)
        try:
            for prepare in (*SITUATIONS, healthy):
                prepare(made)
            yield made
        finally:
            made.close()


@pytest.fixture
def klamm(world: World) -> KlammCommand:
    return KlammCommand(world.bootstrap)


@pytest.mark.parametrize(
    ("group", "kind", "text"), SITUATIONS.values(), ids=[situation[1] for situation in SITUATIONS.values()]
)
def test_the_first_three_lines_have_the_cause(klamm: KlammCommand, group: str, kind: str, text: str) -> None:
    def kinds() -> list[str]:
        return [one["kind"] for one in klamm.ok("groups", "why", group, "--json").document["causes"]]

    # The group has to be behind for a while, and some causes need a minute.
    wait_until(lambda: kinds()[:1] == [kind], kinds, timeout_s=patience() + 60, pause_s=2)
    printed = klamm.ok("groups", "why", group).out.splitlines()
    assert text in "\n".join(printed[:3]), printed
    assert printed[-1].startswith("do: ")


def test_the_time_until_retention_is_told(klamm: KlammCommand) -> None:
    assert "retention deletes unread records in" in klamm.ok("groups", "why", "stopped").out


@pytest.mark.parametrize("group", HEALTHY)
def test_nothing_is_wrong_with_a_healthy_group(klamm: KlammCommand, group: str) -> None:
    wait_until(lambda: not klamm.ok("groups", "why", group, "--json").document["causes"])
    assert "nothing is wrong" in klamm.ok("groups", "why", group).out


def test_a_dead_coordinator_is_the_cause(tmp_path: Path) -> None:
    async def run() -> str:
        async with coordinator_cluster(tmp_path, with_coordinator=False) as running:
            process = CoordinatorProcess(running.controller.port, tmp_path / "coordinator.log")
            await process.start()
            commit = OffsetCommitRequest(group_id="g", offsets=[GroupOffset(topic="t", partition=0, offset=1)])
            assert error_of(await running.ask("g", "offset_commit", commit)) == 0
            await process.kill()
            asked = await asyncio.create_subprocess_exec(
                *(
                    sys.executable,
                    "-m",
                    "klamm",
                    "groups",
                    "why",
                    "g",
                    "--bootstrap",
                    f"localhost:{running.broker.port}",
                ),
                stdout=asyncio.subprocess.PIPE,
            )
            printed, _ = await asked.communicate()
            assert asked.returncode == 1
            return printed.decode()

    first, second, last = asyncio.run(run()).splitlines()
    assert first == "group g: its members cannot join, and its offsets cannot be read"
    assert "coordinator" in second
    assert last == "do: start the coordinator; `klamm cluster status` shows all servers"


def test_a_group_that_does_not_exist_is_refused(klamm: KlammCommand) -> None:
    assert "GROUP_ID_NOT_FOUND" in klamm.refused(1, "groups", "why", "nobody")
