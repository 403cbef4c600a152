"""Tests clients of three brokers: a log that was truncated, a closer replica, a leader that moved."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from klamm import Admin, Consumer, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from klamm.admin import ElectionType
from klamm.consumer import LogTruncation, LogTruncationError
from pyspark_klamm.cluster_access import ClusterAccess
from pyspark_klamm.offsets import OffsetRange
from tests.support.broker_cluster import BrokerCluster, broker_cluster, describe
from tests.support.waiting import patience, wait_until

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    with broker_cluster(tmp_path_factory.mktemp("brokers"), replica_selector_class=SELECTOR) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(running: BrokerCluster) -> Iterator[Admin]:
    with running.admin() as made:
        yield made


@pytest.fixture
def cluster(running: BrokerCluster, admin: Admin) -> BrokerCluster:
    """Returns the cluster after all brokers are live, because the test before may have stopped some."""
    running.restore(admin)
    return running


class Partition:
    """A topic's only partition, with replicas on brokers 1, 2 and 3. Broker 1 leads it at first."""

    def __init__(self, cluster: BrokerCluster, admin: Admin, topic: str, **configs: str) -> None:
        self.tp = TopicPartition(topic, 0)
        self._cluster = cluster
        self._admin = admin
        given = {name.replace("_", "."): text for name, text in configs.items()}
        admin.create_topics([NewTopic(topic, assignments={0: (1, 2, 3)}, configs=given)])

    @property
    def leader(self) -> int:
        return describe(self._admin, self.tp.topic).partitions[0].leader

    def wait_isr(self, *isr: int) -> None:
        def found() -> set[int]:
            return set(describe(self._admin, self.tp.topic).partitions[0].isr)

        wait_until(lambda: found() == set(isr), lambda: f"{found()}\n{self._cluster.logs()}")

    def send(self, *values: bytes, bootstrap: str = "", acks: str | int = "all") -> None:
        """Sends the values and waits until all are acknowledged."""
        with Producer(bootstrap_servers=bootstrap or self._cluster.bootstrap, acks=acks) as producer:
            for future in [producer.send(self.tp.topic, value, partition=0) for value in values]:
                future.result(patience())

    def consumer(self, **settings: object) -> Consumer:
        """Returns a consumer of the partition at offset 0."""
        made = Consumer(bootstrap_servers=self._cluster.bootstrap, **settings)
        made.assign([self.tp])
        made.seek(self.tp, 0)
        return made

    def read(self, consumer: Consumer, count: int) -> list[bytes | None]:
        """Reads the next `count` records, and checks that there are no more."""
        values: list[bytes | None] = []

        def enough() -> bool:
            for records in consumer.poll(timeout_ms=200).values():
                values.extend(record.value for record in records)
            return len(values) >= count

        wait_until(enough, lambda: f"{values}\n{self._cluster.logs()}")
        assert len(values) == count
        return values

    def truncation(self, consumer: Consumer) -> LogTruncationError:
        """Polls until a poll raises LogTruncationError, and returns the error."""
        raised: list[LogTruncationError] = []

        def raises() -> bool:
            try:
                assert not consumer.poll(timeout_ms=200)
            except LogTruncationError as error:
                raised.append(error)
            return bool(raised)

        wait_until(raises, self._cluster.logs)
        return raised[0]


def test_a_consumer_of_records_that_an_unclean_election_lost_gets_a_truncation_error(
    cluster: BrokerCluster, admin: Admin
) -> None:
    partition = Partition(cluster, admin, "cut", unclean_leader_election_enable="true")
    tp = partition.tp
    before, lost, after = [b"before"] * 10, [b"lost"] * 5, [b"after"] * 3
    partition.send(*before)
    partition.wait_isr(1, 2, 3)
    with partition.consumer(auto_offset_reset="none") as strict, partition.consumer(auto_offset_reset="latest") as lax:
        # Freezing would not do, because bytes from the leader would wait in their sockets and be read after the thaw.
        for broker in (2, 3):
            cluster.kill(broker)
        partition.send(*lost, bootstrap=cluster.brokers[1].address, acks=1)
        for consumer in (strict, lax):
            assert partition.read(consumer, 15) == before + lost
        cluster.kill(1)
        for broker in (2, 3):
            cluster.brokers[broker].start()
        wait_until(lambda: partition.leader in (2, 3), cluster.logs)
        error = partition.truncation(strict)
        assert error.truncations == (LogTruncation(tp, 15, 0, OffsetAndMetadata(10, "", 0)),)
        with partition.consumer(auto_offset_reset="none") as late:
            late.seek(tp, OffsetAndMetadata(15, "", 0))
            assert partition.truncation(late).truncations == error.truncations
        partition.send(*after)
        strict.seek(tp, error.divergent_offsets[tp])
        assert partition.read(strict, 3) == after
        assert partition.read(lax, 3) == after, "from where the logs part, not from the latest offset"


def test_a_consumer_reads_in_its_own_rack_or_from_the_leader_if_that_replica_is_dead(
    cluster: BrokerCluster, admin: Admin
) -> None:
    partition = Partition(cluster, admin, "near")

    def bytes_out(broker: int) -> float:
        return cluster.metric_total(broker, "klamm_broker_out_bytes_total")

    first, more = [b"first %d" % number for number in range(50)], [b"more"] * 20
    partition.send(*first)
    partition.wait_isr(1, 2, 3)
    leader_out, follower_out = bytes_out(1), bytes_out(3)
    with partition.consumer(client_rack="rack-3") as consumer:
        assert partition.read(consumer, 50) == first
        assert bytes_out(3) > follower_out
        assert bytes_out(1) == leader_out
        cluster.kill(3)
        partition.send(*more)
        assert partition.read(consumer, 20) == more
        assert bytes_out(1) > leader_out
        cluster.brokers[3].start()
        partition.wait_isr(1, 2, 3)

        def reads_nearby_again() -> bool:
            partition.send(b"again")
            partition.read(consumer, 1)
            return bytes_out(3) > 0

        wait_until(reads_nearby_again, cluster.logs)


def test_sparks_source_reads_in_its_own_rack_or_from_the_leader_if_that_replica_is_dead(
    cluster: BrokerCluster, admin: Admin
) -> None:
    partition = Partition(cluster, admin, "near-spark")
    partition.send(*[b"value"] * 20)
    partition.wait_isr(1, 2, 3)
    source = ClusterAccess({"bootstrap.servers": cluster.bootstrap, "client.rack": "rack-3"})

    def bytes_read() -> tuple[float, float]:
        """Reads the partition. Returns the bytes sent by the leader and by the follower in the rack."""
        before = [cluster.metric_total(broker, "klamm_broker_out_bytes_total") for broker in (1, 3)]
        whole = OffsetRange(tp=partition.tp, start_offset=0, end_offset=20)
        assert sum(len(fetched.records) for fetched in source.fetch(whole, 60_000)) > 0
        leader, follower = (cluster.metric_total(broker, "klamm_broker_out_bytes_total") for broker in (1, 3))
        return leader - before[0], follower - before[1]

    leader, follower = bytes_read()
    assert (leader, follower > 0) == (0, True)
    cluster.kill(3)
    whole = OffsetRange(tp=partition.tp, start_offset=0, end_offset=20)
    assert sum(len(fetched.records) for fetched in source.fetch(whole, 60_000)) > 0
    source.close()


def test_clients_that_learn_the_new_leader_from_the_former_one_request_no_metadata(
    cluster: BrokerCluster, admin: Admin
) -> None:
    partition = Partition(cluster, admin, "hinted")
    tp = partition.tp
    partition.wait_isr(1, 2, 3)

    def metadata_calls() -> float:
        return sum(cluster.metric(broker, "klamm_broker_requests_total", rpc="Metadata") for broker in cluster.brokers)

    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer, partition.consumer() as consumer:
        producer.send(tp.topic, b"before", partition=0).result(patience())
        assert partition.read(consumer, 1) == [b"before"]
        led = cluster.metric(2, "klamm_broker_leader_count")
        admin.alter_partition_reassignments({tp: [2, 1, 3]})
        calls = metadata_calls()
        admin.elect_leaders(ElectionType.PREFERRED, [tp])
        wait_until(lambda: cluster.metric(2, "klamm_broker_leader_count") > led, cluster.logs)
        producer.send(tp.topic, b"after", partition=0).result(patience())
        assert partition.read(consumer, 1) == [b"after"]
        assert metadata_calls() == calls
        assert partition.leader == 2
