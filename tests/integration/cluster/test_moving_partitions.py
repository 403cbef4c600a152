"""Tests that operators can move leaders and replicas with the command on three brokers."""

from __future__ import annotations

import json
import os
import pathlib
import pty
import signal
from collections.abc import Iterator

import pytest

from klamm import Admin, Consumer, NewTopic, Producer, TopicPartition
from klamm.admin import PartitionDescription
from klamm.model import EARLIEST_TIMESTAMP
from tests.support.broker_cluster import BrokerCluster, broker_cluster, describe
from tests.support.cli_runner import KlammCommand
from tests.support.cli_terminal import read_terminal, start
from tests.support.waiting import patience, wait_until

RECORDS = [b"record %d" % number for number in range(300)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    with broker_cluster(tmp_path_factory.mktemp("moving")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(running: BrokerCluster) -> Iterator[Admin]:
    with running.admin() as made:
        yield made


@pytest.fixture
def cluster(running: BrokerCluster, admin: Admin) -> BrokerCluster:
    running.restore(admin)
    return running


@pytest.fixture
def klamm(cluster: BrokerCluster) -> KlammCommand:
    return KlammCommand(cluster.bootstrap)


def make_topic(cluster: BrokerCluster, admin: Admin, name: str, *replicas: tuple[int, ...]) -> None:
    """Creates the topic on these replicas and produces its records, so that all replicas are in sync."""
    admin.create_topics([NewTopic(name, assignments=dict(enumerate(replicas)))])
    produce(cluster, name, len(replicas))


def produce(cluster: BrokerCluster, name: str, partitions: int = 1) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all", metadata_max_age_ms=500) as producer:
        for future in [
            producer.send(name, value, partition=number % partitions) for number, value in enumerate(RECORDS)
        ]:
            future.result(patience())


def read(cluster: BrokerCluster, name: str, count: int) -> list[bytes]:
    with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(name, partition.partition) for partition in partitions_of(cluster, name)]
        consumer.assign(partitions)
        values: list[bytes] = []

        def enough() -> bool:
            for records in consumer.poll(timeout_ms=200).values():
                values.extend(record.value for record in records if record.value is not None)
            return len(values) >= count

        wait_until(enough, cluster.logs)
    return sorted(values)


def partitions_of(cluster: BrokerCluster, name: str) -> tuple[PartitionDescription, ...]:
    with cluster.admin() as admin:
        return describe(admin, name).partitions


def wait(cluster: BrokerCluster, admin: Admin, name: str, replicas: set[int]) -> None:
    """Waits until each partition has exactly these brokers as replicas, all of them in sync."""

    def there() -> bool:
        found = describe(admin, name).partitions
        return all(set(each.replicas) == set(each.isr) == replicas for each in found)

    wait_until(there, lambda: f"{describe(admin, name)}\n{cluster.logs()}")


def test_a_plan_moves_partitions_with_their_records(cluster: BrokerCluster, admin: Admin, klamm: KlammCommand) -> None:
    make_topic(cluster, admin, "moved", (1,), (1,))
    plan = klamm.ok("reassign", "generate", "moved", "--brokers", "2,3", "--replication-factor", "2").out
    dry = klamm.ok("reassign", "execute", "-", "--dry-run", stdin=plan)
    moves = [f"would move moved-{number} from 1 to " for number in range(2)]
    assert [line[: len(moves[0])] for line in dry.out.splitlines()] == moves
    document = klamm.ok("reassign", "execute", "-", "--dry-run", "--json", "--throttle", 1, stdin=plan).document
    assert [each["replicas"] for each in document["partitions"]] == [[1], [1]]
    assert (document["throttle"], document["validate_only"]) == (1, True)
    assert throttles(klamm, "moved") == set()
    assert klamm.ok("reassign", "list", "--json").document == []
    assert all(partition.replicas == (1,) for partition in describe(admin, "moved").partitions)
    back = klamm.ok("reassign", "execute", "-", stdin=plan)
    assert [each["replicas"] for each in back.document["partitions"]] == [[1], [1]]
    wait(cluster, admin, "moved", {2, 3})
    wait_until(lambda: not klamm.ok("reassign", "list", "--json").document, cluster.logs)
    assert all(partition.leader in (2, 3) for partition in describe(admin, "moved").partitions)
    assert read(cluster, "moved", len(RECORDS)) == sorted(RECORDS)


def test_a_producer_with_acks_0_follows_its_partition_to_the_new_leader(cluster: BrokerCluster, admin: Admin) -> None:
    """Both leaders live, so no connection breaks. The client learns of the move from the old leader's answer."""
    admin.create_topics([NewTopic("unacknowledged", assignments={0: (1,)})])
    with Producer(bootstrap_servers=cluster.bootstrap, acks=0) as producer:
        sent = [b"before"]
        producer.send("unacknowledged", sent[0]).result(patience())
        admin.alter_partition_reassignments({TopicPartition("unacknowledged", 0): [2]})

        def has_moved() -> bool:
            sent.append(b"%d" % len(sent))
            producer.send("unacknowledged", sent[-1]).result(patience())
            return describe(admin, "unacknowledged").partitions[0].replicas == (2,)

        wait_until(has_moved, cluster.logs)
        sent.append(b"after")
        producer.send("unacknowledged", b"after").result(patience())
    assert read(cluster, "unacknowledged", len(sent)) == sorted(sent)


def test_a_partition_whose_first_records_were_deleted_moves_too(cluster: BrokerCluster, admin: Admin) -> None:
    """The log starts in the middle of a batch. The new replica copies the batch and has the same start offset."""
    admin.create_topics([NewTopic("cut", assignments={0: (1,)})])
    first = TopicPartition("cut", 0)
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all", linger_ms=10_000) as producer:
        futures = [producer.send("cut", b"%d" % number, partition=0) for number in range(10)]
        producer.flush()
        assert [future.result(patience()).offset for future in futures] == list(range(10))
    assert admin.delete_records({first: 5}) == {first: 5}
    admin.alter_partition_reassignments({first: [2]})
    wait(cluster, admin, "cut", {2})
    wait_until(lambda: not admin.list_partition_reassignments(), cluster.logs)
    assert read(cluster, "cut", 5) == [b"%d" % number for number in range(5, 10)]
    assert admin.list_offsets({first: EARLIEST_TIMESTAMP})[first].offset == 5


def make_slow(cluster: BrokerCluster, admin: Admin, name: str) -> None:
    """Creates a topic on broker 1 with 60 batches, so that a throttle of a byte per second lasts for minutes.

    At this rate each batch takes eleven seconds.
    """
    admin.create_topics([NewTopic(name, assignments={0: (1,)})])
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for number in range(60):
            producer.send(name, b"%d" % number, partition=0).result(patience())


def plan_of(name: str, *replicas: int) -> str:
    partitions = [{"topic": name, "partition": 0, "replicas": list(replicas)}]
    return json.dumps({"version": 1, "partitions": partitions})


def throttles(klamm: KlammCommand, name: str) -> set[str]:
    """Returns the names of the throttles that are set on the topic and on brokers 1 and 2."""
    shown = [klamm.ok("configs", "describe", "--topic", name, "--json").document]
    shown += [klamm.ok("configs", "describe", "--broker", broker, "--json").document for broker in (1, 2)]
    return {row["name"] for rows in shown for row in rows if "throttled" in row["name"] and row["source"] != "DEFAULT"}


def test_a_throttled_reassignment_is_slow_and_does_not_delay_others(
    cluster: BrokerCluster, admin: Admin, klamm: KlammCommand, tmp_path: pathlib.Path
) -> None:
    make_slow(cluster, admin, "throttled")
    make_topic(cluster, admin, "free", (1,))
    plan = plan_of("throttled", 2)
    klamm.ok("reassign", "execute", "-", "--throttle", 1, stdin=plan)
    assert len(throttles(klamm, "throttled")) == 4
    klamm.ok("reassign", "execute", "-", stdin=plan_of("free", 2))
    wait(cluster, admin, "free", {2})
    (row,) = klamm.ok("reassign", "verify", "-", "--json", stdin=plan).document
    assert (row["state"], row["replicas"]) == ("moving", [2])
    assert row["copied"] < 50
    assert len(throttles(klamm, "throttled")) == 4
    (tmp_path / "plan.json").write_text(plan)
    leader, follower = pty.openpty()
    with start(klamm, "reassign", "verify", str(tmp_path / "plan.json"), "--wait", stderr=follower) as verifying:
        os.close(follower)
        assert "0 of 1 partition moved, " in read_terminal(leader, b"B/s")
        klamm.ok("reassign", "execute", "-", "--throttle", 10**9, stdin=plan)
        wait(cluster, admin, "throttled", {2})
        read_terminal(leader, b"\0")
        assert verifying.wait(patience()) == 0
        assert verifying.stdout is not None
        shown = verifying.stdout.read().decode()
    os.close(leader)
    assert shown.splitlines()[1].split() == ["throttled", "0", "complete", "2", "100"]
    assert admin.list_partition_reassignments() == {}
    (row,) = klamm.ok("reassign", "verify", "-", "--json", stdin=plan).document
    assert (row["state"], row["copied"]) == ("complete", 100)
    assert throttles(klamm, "throttled") == set()
    assert len(read(cluster, "throttled", 60)) == 60
    elsewhere = klamm("reassign", "verify", "-", "--json", stdin=plan_of("throttled", 3))
    assert (elsewhere.status, elsewhere.document[0]["state"]) == (1, "not as planned")


@pytest.mark.parametrize(("side", "replica"), [("leader", "0:1"), ("follower", "0:2")])
def test_the_leader_or_the_follower_alone_can_be_throttled(
    cluster: BrokerCluster, admin: Admin, klamm: KlammCommand, side: str, replica: str
) -> None:
    name, free = f"by-{side}", f"beside-{side}"
    make_slow(cluster, admin, name)
    make_topic(cluster, admin, free, (1,))
    klamm.ok("configs", "alter", "--topic", name, "--set", f"{side}.replication.throttled.replicas={replica}")
    klamm.ok("configs", "alter", "--all-brokers", "--set", f"{side}.replication.throttled.rate=1")
    admin.alter_partition_reassignments({TopicPartition(name, 0): [2], TopicPartition(free, 0): [2]})
    wait(cluster, admin, free, {2})
    (row,) = klamm.ok("reassign", "verify", "-", "--json", stdin=plan_of(name, 2)).document
    assert row["state"] == "moving"
    klamm.ok("configs", "alter", "--all-brokers", "--delete", f"{side}.replication.throttled.rate")
    wait(cluster, admin, name, {2})
    assert len(read(cluster, name, 60)) == 60


def test_a_cancelled_move_leaves_no_throttle(cluster: BrokerCluster, admin: Admin, klamm: KlammCommand) -> None:
    make_slow(cluster, admin, "cancelled")
    plan = plan_of("cancelled", 2)
    klamm.ok("reassign", "execute", "-", "--throttle", 1, stdin=plan)
    klamm.ok("reassign", "cancel", "-", stdin=plan)
    assert throttles(klamm, "cancelled") == set()
    assert describe(admin, "cancelled").partitions[0].replicas == (1,)


def test_a_reassignment_to_a_dead_broker_is_listed_and_can_be_cancelled(
    cluster: BrokerCluster, admin: Admin, klamm: KlammCommand
) -> None:
    make_topic(cluster, admin, "stuck", (1, 2))
    cluster.kill(3)
    wait_until(lambda: 3 not in {b.node_id for b in admin.describe_cluster().brokers if not b.fenced}, cluster.logs)
    admin.alter_partition_reassignments({TopicPartition("stuck", 0): [1, 3]})
    (row,) = klamm.ok("reassign", "list", "--json").document
    assert (row["topic"], row["adding"], row["removing"]) == ("stuck", [3], [2])
    (row,) = klamm.ok("topics", "describe", "stuck", "--json").document
    assert (row["adding"], row["removing"], row["offline"]) == ([3], [2], [3])
    assert klamm.ok("reassign", "cancel", "--all", "--dry-run").out == "would cancel 1 reassignment\n"
    assert [each["topic"] for each in klamm.ok("reassign", "list", "--json").document] == ["stuck"]
    document = klamm.ok("reassign", "cancel", "--all", "--json").document
    assert document == {"cancelled": ["stuck-0"], "validate_only": False}
    (partition,) = describe(admin, "stuck").partitions
    assert (partition.replicas, partition.adding_replicas, set(partition.isr)) == ((1, 2), (), {1, 2})
    refused = [klamm.refused(1, "reassign", "cancel", "-", *options, stdin=PLAN) for options in (["--dry-run"], [])]
    assert "stuck-0" in refused[0]
    assert refused[0] == refused[1]


@pytest.mark.parametrize("replicas", [(), (1, 1), (1, 9)])
def test_a_dry_run_refuses_the_plans_that_the_cluster_refuses(
    cluster: BrokerCluster, admin: Admin, klamm: KlammCommand, replicas: tuple[int, ...]
) -> None:
    name = f"impossible-{len(replicas)}-{sum(replicas)}"
    make_topic(cluster, admin, name, (1,))
    plan = plan_of(name, *replicas)
    refused = [klamm.refused(1, "reassign", "execute", "-", *options, stdin=plan) for options in (["--dry-run"], [])]
    assert "INVALID_REPLICA_ASSIGNMENT" in refused[0]
    assert refused[0] == refused[1]


PLAN = '{"version": 1, "partitions": [{"topic": "stuck", "partition": 0, "replicas": [1]}]}'


def test_a_reassignment_ends_while_a_replica_that_stays_is_dead(
    cluster: BrokerCluster, admin: Admin, klamm: KlammCommand
) -> None:
    make_topic(cluster, admin, "half-dead", (1, 2))
    cluster.kill(2)
    wait_until(lambda: describe(admin, "half-dead").partitions[0].isr == (1,), cluster.logs)
    plan = plan_of("half-dead", 2, 3)
    moved = klamm.ok("reassign", "execute", "-", "--wait", stdin=plan)
    assert moved.document["partitions"][0]["replicas"] == [1, 2]
    assert admin.list_partition_reassignments() == {}
    (partition,) = describe(admin, "half-dead").partitions
    assert (partition.replicas, partition.isr, partition.leader) == ((2, 3), (3,), 3)
    (row,) = klamm.ok("reassign", "verify", "-", "--json", stdin=plan).document
    assert row["state"] == "complete"
    assert read(cluster, "half-dead", len(RECORDS)) == sorted(RECORDS)
    cluster.brokers[2].start()
    wait(cluster, admin, "half-dead", {2, 3})


def test_a_stopped_broker_hands_over_its_partitions_and_leads_again_after_an_election(
    cluster: BrokerCluster, admin: Admin, klamm: KlammCommand
) -> None:
    make_topic(cluster, admin, "led", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    wait(cluster, admin, "led", {1, 2, 3})
    cluster.brokers[1].end(signal.SIGTERM)
    for partition in describe(admin, "led").partitions:
        assert partition.leader in (2, 3)
        assert 1 not in partition.isr
    shown = klamm.ok("topics", "describe", "led", "--under-replicated-partitions", "--json").document
    assert [row["offline"] for row in shown] == [[1], [1], [1]]
    assert klamm.ok("topics", "describe", "led", "--unavailable-partitions", "--json").document == []
    produce(cluster, "led", 3)
    cluster.brokers[1].start()
    wait(cluster, admin, "led", {1, 2, 3})
    assert describe(admin, "led").partitions[0].leader != 1
    (row,) = klamm.ok("topics", "elect-leaders", "led", "--json", "--dry-run").document
    assert (row["partition"], row["result"]) == (0, "would be elected")
    assert describe(admin, "led").partitions[0].leader != 1
    (row,) = klamm.ok("topics", "elect-leaders", "led", "--json").document
    assert (row["partition"], row["result"]) == (0, "elected")
    assert [partition.leader for partition in describe(admin, "led").partitions] == [1, 2, 3]
    assert read(cluster, "led", 2 * len(RECORDS)) == sorted(2 * RECORDS)


def test_an_unclean_election_happens_only_on_request_and_is_counted_and_logged(
    cluster: BrokerCluster, admin: Admin, klamm: KlammCommand
) -> None:
    make_topic(cluster, admin, "unclean", (1, 2))
    wait(cluster, admin, "unclean", {1, 2})
    cluster.kill(2)
    wait_until(lambda: describe(admin, "unclean").partitions[0].isr == (1,), cluster.logs)
    produce(cluster, "unclean")
    cluster.kill(1)
    wait_until(lambda: describe(admin, "unclean").partitions[0].leader == -1, cluster.logs)
    cluster.brokers[2].start()
    wait_until(
        lambda: 2 in {broker.node_id for broker in admin.describe_cluster().brokers if not broker.fenced}, cluster.logs
    )
    (row,) = klamm.ok("topics", "describe", "unclean", "--json").document
    assert (row["leader"], row["isr"]) == (-1, []), "broker 2 lacks records, and nobody asked"
    assert (row["elr"], row["last_known_elr"]) == ([1], [1])
    header = klamm.ok("topics", "describe", "unclean").out.splitlines()[0]
    assert header.split()[3:9] == ["REPLICAS", "ISR", "ELR", "LAST", "KNOWN", "ELR"]
    before = cluster.controller_metric("klamm_unclean_leader_elections_total")
    dry, real = (klamm("topics", "elect-leaders", "unclean", "--json", *each) for each in (["--dry-run"], []))
    assert dry.status == real.status == 1
    assert dry.document == real.document
    assert "PREFERRED_LEADER_NOT_AVAILABLE" in dry.document[0]["result"]
    (row,) = klamm.ok("topics", "elect-leaders", "unclean", "--unclean", "--json", "--dry-run").document
    assert row["result"] == "would be elected"
    assert describe(admin, "unclean").partitions[0].leader == -1
    (row,) = klamm.ok("topics", "elect-leaders", "unclean", "--unclean", "--json").document
    assert row["result"] == "elected"
    (row,) = klamm.ok("topics", "describe", "unclean", "--json").document
    assert (row["leader"], row["isr"], row["elr"], row["last_known_elr"]) == (2, [2], [], [])
    assert cluster.controller_metric("klamm_unclean_leader_elections_total") == before + 1
    assert "topic=unclean partition=0 leader=2 elected uncleanly" in cluster.controller.log_path.read_text()
    cluster.brokers[1].start()
    wait(cluster, admin, "unclean", {1, 2})
    assert read(cluster, "unclean", len(RECORDS)) == sorted(RECORDS)
    wait_until(lambda: cluster.records(1, "unclean") == cluster.records(2, "unclean"), cluster.logs)


def test_a_decommissioned_broker_has_no_replicas_and_can_be_unregistered(
    cluster: BrokerCluster, admin: Admin, klamm: KlammCommand
) -> None:
    # A replica can leave broker 3 only if the partition does not need all three brokers.
    admin.delete_topics(name for name in admin.list_topics())
    make_topic(cluster, admin, "leaves", (3, 1), (2, 3), (1, 2))
    dry = klamm.ok("cluster", "decommission", 3, "--dry-run")
    assert dry.out == "would move the replicas of 2 partitions off broker 3\n"
    document = klamm.ok("cluster", "decommission", 3, "--dry-run", "--json").document
    assert document == {"broker": 3, "partitions_left": 2, "validate_only": True}
    assert klamm.ok("reassign", "list", "--json").document == []
    document = klamm.ok("cluster", "decommission", 3, "--json").document
    assert document == {"broker": 3, "partitions_left": 0, "validate_only": False}
    wait(cluster, admin, "leaves", {1, 2})
    assert read(cluster, "leaves", len(RECORDS)) == sorted(RECORDS)
    running = klamm.ok("cluster", "unregister", 3, "--dry-run").out
    assert running == "would unregister broker 3\nthe broker still runs, so it would register again\n"
    cluster.brokers[3].end(signal.SIGTERM)
    assert klamm.ok("cluster", "unregister", 3, "--dry-run").out == "would unregister broker 3\n"
    document = {"unregistered": 3, "validate_only": False}
    assert klamm.ok("cluster", "unregister", 3, "--json").document == document
    assert [broker.node_id for broker in admin.describe_cluster().brokers] == [1, 2]
    refused = [klamm.refused(1, "cluster", "unregister", 3, *options) for options in (["--dry-run"], [])]
    assert refused == ["klamm: BROKER_ID_NOT_REGISTERED: broker 3 is not registered"] * 2
    refused = [klamm.refused(1, "cluster", "decommission", 3, *options) for options in (["--dry-run"], [])]
    assert refused == ["klamm: BROKER_ID_NOT_REGISTERED: broker 3 is not registered"] * 2
    for name in ("narrow", "wide"):
        make_topic(cluster, admin, name, (1, 2))
    refused = [klamm.refused(1, "cluster", "decommission", 2, *options) for options in (["--dry-run"], [])]
    assert "INVALID_REPLICATION_FACTOR" in refused[0]
    assert refused[0] == refused[1]
