"""Tests three controllers, a broker and a coordinator as processes: acknowledged changes survive a minority's loss."""

from __future__ import annotations

import asyncio
import pathlib
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from klamm import Admin, Consumer, NewTopic, Producer
from klamm.admin.types import QuorumDescription
from klamm.errors import ErrorCode
from klamm.wire.v1 import controller_pb2 as pb
from tests.support.controller_quorum import Quorum, quorum_processes
from tests.support.quorum_load import History, load
from tests.support.waiting import patience, wait_until

HAND_OVER = {
    # If a leader waited until other servers' streams end, it would end only after the test has timed out.
    "shutdown_grace_ms": "3600000",
    # A leader has two election timeouts to hand over.
    "controller_quorum_election_timeout_ms": "2000",
    "controller_quorum_election_timeout_max_ms": "2000",
}


@pytest.fixture
def quorum(tmp_path: pathlib.Path) -> Iterator[Quorum]:
    """Yields a started quorum with a leader and a live broker."""
    with started(tmp_path) as made:
        yield made


@contextmanager
def started(directory: pathlib.Path, **settings: str) -> Iterator[Quorum]:
    # With a snapshot every 20 kB, a controller that was away for long receives a snapshot.
    with quorum_processes(directory, metadata_log_max_record_bytes_between_snapshots="20000", **settings) as made:
        made.start()
        with Admin(bootstrap_servers=made.broker.address, retry_backoff_max_ms=100) as admin:
            admin.create_topics([NewTopic("first", partition_count=1)])
        yield made


async def ended(quorum: Quorum, node_id: int, number: signal.Signals) -> int:
    return await asyncio.to_thread(quorum.controllers[node_id].end, number)


async def leader_of(quorum: Quorum, but: int | None = None) -> int:
    return (await asyncio.to_thread(quorum.wait_leader, but=but)).node_id


async def describe(quorum: Quorum) -> pb.DescribeQuorumResponse:
    """Returns the leader's view of the quorum, after all three controllers have reported to it."""
    while True:
        described = await asyncio.to_thread(quorum.describe, await leader_of(quorum))
        replicas = controllers_of(described) if described is not None else []
        if described is not None and len(replicas) == 3 and all(replica.silent_ms < 1_000 for replica in replicas):
            return described
        await asyncio.sleep(0.05)


def controllers_of(described: pb.DescribeQuorumResponse) -> list[pb.QuorumReplica]:
    """Returns the controllers, without the brokers and coordinators, which are observers."""
    return [replica for replica in described.replicas if replica.kind == pb.QUORUM_REPLICA_KIND_CONTROLLER]


async def all_caught_up(quorum: Quorum) -> None:
    """Waits until every voter has everything that was committed when this was called."""
    wanted = (await describe(quorum)).high_watermark
    while True:
        described = await describe(quorum)
        if min(replica.end_index for replica in controllers_of(described)) >= wanted:
            return
        await asyncio.sleep(0.05)


@pytest.mark.slow
def test_every_controller_names_the_leader_of_the_quorum(quorum: Quorum) -> None:
    # A machine too busy for heartbeats may elect another leader in between. Then the test asks all controllers again.
    for _ in range(10):
        asyncio.run(all_caught_up(quorum))
        leader = quorum.wait_leader()
        before = quorum.describe(leader.node_id)
        described, controller_id = described_by_broker(quorum)
        others = {node: quorum.describe(node) for node in quorum.controllers.keys() - {leader.node_id}}
        after = quorum.describe(leader.node_id)
        if before is not None and after is not None and before.term == after.term:
            break
    else:
        pytest.fail("no leader lasts for as long as it takes to ask everybody")
    assert (described.leader_id, controller_id) == (leader.node_id, leader.node_id)
    assert [(replica.kind.name, replica.node_id, replica.is_voter) for replica in described.replicas] == [
        *(("CONTROLLER", node_id, True) for node_id in (1, 2, 3)),
        ("BROKER", 1, False),
        ("COORDINATOR", 1, False),
    ]
    for answer in others.values():
        assert answer is not None
        assert (answer.error_code, answer.controller.port) == (ErrorCode.NOT_CONTROLLER, leader.port)


def described_by_broker(quorum: Quorum) -> tuple[QuorumDescription, int]:
    """Returns the quorum as a broker describes it, and the controller that the broker names to clients.

    The quorum includes a broker and a coordinator.
    """
    with Admin(bootstrap_servers=quorum.broker.address) as admin:
        # Brokers and coordinators appear with their first heartbeat to this leader.
        wait_until(lambda: len(admin.describe_quorum().replicas) >= 5, pause_s=0.05)
        return admin.describe_quorum(), admin.describe_cluster().controller_id


def hears_of_another_leader(log: str, node_id: int) -> bool:
    """Returns True if the last leader in the controller's log is another controller."""
    return re.findall(r"leader of the quorum changed, term=\d+ leader=(-?\d+)", log)[-1] not in ("-1", str(node_id))


@pytest.mark.slow
def test_a_leader_that_is_stopped_hands_over_before_it_ends(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outages_s: list[float] = []
    handed_over: list[bool] = []

    async def run(quorum: Quorum) -> None:
        history = History()
        async with load(quorum, history):
            for _ in range(3):
                leader = await leader_of(quorum)
                stopped_s = time.monotonic()
                assert await ended(quorum, leader, signal.SIGTERM) == 0
                handed_over.append(hears_of_another_leader(quorum.controllers[leader].log_path.read_text(), leader))
                await leader_of(quorum, but=leader)
                await history.wait_for_acknowledgement(stopped_s)
                outages_s.append(history.outage_s(stopped_s))
                quorum.controllers[leader].start()
                await all_caught_up(quorum)

    with started(tmp_path, **HAND_OVER) as quorum:
        asyncio.run(run(quorum))
    with capsys.disabled():
        print(f"\nhandovers: {', '.join(f'{each:.3f}s' for each in outages_s)}")
    assert any(handed_over), "none heard of the next leader before it ended"


@pytest.mark.slow
def test_records_are_produced_and_consumed_while_controllers_stop_and_start(quorum: Quorum) -> None:
    servers = {"bootstrap_servers": quorum.broker.address}
    with (
        Producer(**servers) as producer,
        Consumer(**servers, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer,
    ):
        consumer.subscribe(["first"])
        read: list[bytes] = []

        def poll() -> None:
            read.extend(record.value for records in consumer.poll(timeout_ms=200).values() for record in records)

        def flow(values: list[bytes]) -> None:
            for value in values:
                producer.send("first", value)
            producer.flush()
            wait_until(lambda: set(values) <= set(read), lambda: read, between=poll)
            consumer.commit()

        flow([b"before"])
        for round_ in range(2):
            leader = quorum.wait_leader()
            leader.end(signal.SIGKILL)
            flow([b"during-%d-%d" % (round_, number) for number in range(20)])
            quorum.wait_leader()
            with Admin(**servers, retry_backoff_max_ms=100) as admin:
                admin.create_topics([NewTopic(f"topic-{round_}", partition_count=1)])
            producer.send(f"topic-{round_}", b"x").result(timeout=patience())
            leader.start()
            asyncio.run(all_caught_up(quorum))
        assert sorted(read) == sorted(set(read)), "an election is no reason to read anything twice"
