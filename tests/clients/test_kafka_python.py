"""kafka-python against the Kafka listener, with nothing changed but `bootstrap_servers`."""

from __future__ import annotations

import threading
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

import pytest
from kafka import (
    ConsumerRebalanceListener,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    TopicPartition,
)
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]
COUNT = 200
TIMEOUT_S = 60
METADATA_MAX_AGE_MS = 2_000
POLL_MS = 2_000


def behaviour(text):
    return pytest.mark.behaviour("kafka-python", text)


@pytest.fixture
def admin(bootstrap):
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def consumer_of(bootstrap, *topics, **config):
    # A consumer that subscribes while metadata is on its way is not heard (`ClusterMetadata.set_topics`) until it is
    # this old.
    defaults = {
        "auto_offset_reset": "earliest",
        "consumer_timeout_ms": TIMEOUT_S * 1_000,
        "metadata_max_age_ms": METADATA_MAX_AGE_MS,
    }
    return KafkaConsumer(*topics, bootstrap_servers=bootstrap, **{**defaults, **config})


def read(consumer, count):
    records = []
    for record in consumer:
        records.append(record)
        if len(records) == count:
            break
    return records


# The other codecs need libraries of its own; librdkafka brings them.
@behaviour("produces and consumes with every codec")
@pytest.mark.parametrize("codec", [None, "gzip"])
def test_records_come_back_as_they_were_sent(bootstrap, admin, name, codec):
    admin.create_topics([NewTopic(name, 3, 3)])
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, acks="all")
    sent = {}
    for number in range(COUNT):
        key, value, headers = b"k%d" % number, b"v%d" % number * 10, [("n", b"%d" % number)]
        future = producer.send(name, value, key=key, headers=headers, timestamp_ms=1_000 + number)
        sent[key] = (value, headers, 1_000 + number, future)
    producer.flush(TIMEOUT_S)
    consumer = consumer_of(bootstrap, name)
    for record in read(consumer, COUNT):
        value, headers, timestamp_ms, future = sent.pop(record.key)
        metadata = future.get(TIMEOUT_S)
        assert (record.value, list(record.headers), record.timestamp) == (value, headers, timestamp_ms)
        assert (record.partition, record.offset) == (metadata.partition, metadata.offset)
    assert not sent
    consumer.close()
    producer.close()


@behaviour("produces without duplicates (idempotent)")
def test_idempotent_records_are_in_the_log_once_and_in_order(bootstrap, admin, name):
    """The producer's records arrive once and in order, and the partition knows its last sequence number."""
    admin.create_topics([NewTopic(name, 1, 3)])
    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, batch_size=200)
    for number in range(COUNT):
        producer.send(name, b"%d" % number)
    producer.flush(TIMEOUT_S)
    partition = TopicPartition(name, 0)
    (state,) = admin.describe_producers([partition])[partition].active_producers
    assert state.last_sequence == COUNT - 1
    consumer = consumer_of(bootstrap, name)
    assert [int(record.value) for record in read(consumer, COUNT)] == list(range(COUNT))
    consumer.close()
    producer.close()


@behaviour("groups rebalance while they consume")
def test_a_group_shares_partitions_and_finds_its_committed_offsets(bootstrap, admin, name, wait_until_known):
    admin.create_topics([NewTopic(name, 4, 1)])
    wait_until_known(name)
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(COUNT):
        producer.send(name, b"%d" % number, partition=number % 4)
    producer.flush(TIMEOUT_S)
    first = consumer_of(bootstrap, name, group_id=name, enable_auto_commit=False)
    assert len(read(first, COUNT // 2)) == COUNT // 2
    positions = {partition: first.position(partition) for partition in first.assignment()}
    first.commit()
    second = consumer_of(bootstrap, name, group_id=name, enable_auto_commit=False)
    until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)
    assert first.assignment() | second.assignment() == {TopicPartition(name, number) for number in range(4)}
    assert {partition: second.committed(partition) for partition in positions} == positions
    first.close()
    second.close()
    producer.close()


@behaviour("groups rebalance cooperatively")
def test_a_cooperative_rebalance_revokes_only_partitions_that_move(bootstrap, admin, name, wait_until_known):
    admin.create_topics([NewTopic(name, 4, 1)])
    wait_until_known(name)
    moves = []

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, partitions):
            moves.append(-len(partitions))

        def on_partitions_assigned(self, partitions):
            moves.append(len(partitions))

    first, second = (
        consumer_of(bootstrap, group_id=name, partition_assignment_strategy=[CooperativeStickyAssignor])
        for _ in range(2)
    )
    first.subscribe([name], listener=Listener())
    until(lambda: len(first.assignment()) == 4, first)
    second.subscribe([name])
    until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)
    assert [count for count in moves if count] == [4, -2]
    assert first.assignment() | second.assignment() == {TopicPartition(name, number) for number in range(4)}
    first.close()
    until(lambda: len(second.assignment()) == 4, second)
    second.close()


@behaviour("static members keep their partitions")
def test_a_static_member_comes_back_to_its_partitions(bootstrap, admin, name, wait_until_known):
    admin.create_topics([NewTopic(name, 4, 1)])
    wait_until_known(name)
    static = consumer_of(bootstrap, name, group_id=name, group_instance_id="one")
    until(lambda: len(static.assignment()) == 4, static)
    other = consumer_of(bootstrap, name, group_id=name)
    until(lambda: len(static.assignment()) == len(other.assignment()) == 2, static, other)
    had, others = static.assignment(), other.assignment()
    generation = other.group_metadata().generation_id
    static.close()
    back = consumer_of(bootstrap, name, group_id=name, group_instance_id="one")
    until(lambda: back.assignment() == had, back, other)
    assert other.assignment() == others
    assert other.group_metadata().generation_id == generation
    back.close()
    other.close()


def until(condition, *consumers):
    """Polls each consumer in a thread of its own until the condition holds. A join must not last longer than its poll.
    Otherwise kafka-python drops the late answer to a SyncGroup. It then sends no heartbeats and does not join again
    until its session has ended."""
    over = threading.Event()

    def poll(consumer):
        while not over.is_set():
            consumer.poll(POLL_MS)

    with ThreadPoolExecutor(len(consumers)) as threads:
        polls = [threads.submit(poll, consumer) for consumer in consumers]
        try:
            deadline_s = time.monotonic() + TIMEOUT_S
            while not condition():
                assert time.monotonic() < deadline_s, [consumer.assignment() for consumer in consumers]
                wait(polls, timeout=0.05, return_when=FIRST_EXCEPTION)
        finally:
            over.set()
    for each in polls:
        each.result()


@behaviour("offsets by time, at both ends, records deleted")
def test_offsets_are_found_by_time_and_at_both_ends(bootstrap, admin, name):
    admin.create_topics([NewTopic(name, 1, 1)])
    partition = TopicPartition(name, 0)
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(10):
        producer.send(name, b"x", timestamp_ms=1_000 * number + 1_000).get(TIMEOUT_S)
    consumer = consumer_of(bootstrap)
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 10}
    found = consumer.offsets_for_times({partition: 5_500})[partition]
    assert (found.offset, found.timestamp) == (5, 6_000)
    assert consumer.offsets_for_times({partition: 99_000})[partition] is None
    consumer.close()
    producer.close()


@behaviour("names errors as with Kafka")
@behaviour("topics, partitions, configs")
def test_an_admin_creates_extends_describes_and_deletes_a_topic(bootstrap, admin, name):
    admin.create_topics([NewTopic(name, 1, 3, topic_configs={"retention.ms": "60000"})])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(name, 1, 1)])
    admin.create_partitions({name: NewPartitions(3)})
    # Any broker answers, and each learns of it a moment later.
    deadline_s = time.monotonic() + TIMEOUT_S
    while len((described := admin.describe_topics([name])[0])["partitions"]) != 3:
        assert time.monotonic() < deadline_s, described
    assert sorted(described["partitions"][0]["replica_nodes"]) == [1, 2, 3]
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    assert name in admin.list_topics()
    assert "60000" in str(admin.describe_configs([resource]))
    assert len(admin.describe_cluster()["brokers"]) == 3
    admin.delete_topics([name])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([name])


@behaviour("reads, processes and writes in transactions")
@behaviour("a newer producer fences the older one")
@behaviour("transactions and producers described")
def test_aborted_records_are_not_read_and_a_newer_producer_fences_the_older_one(bootstrap, admin, name):
    admin.create_topics([NewTopic(name, 1, 3)])
    partition = TopicPartition(name, 0)
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    producer.init_transactions()
    for number in range(3):
        producer.begin_transaction()
        producer.send(name, b"%d" % number).get(TIMEOUT_S)
        described = admin.describe_transactions([name])
        assert "ongoing" in str(described).lower()
        assert str(admin.describe_producers([partition])).count("producer_id") == 1
        if number == 1:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    consumer = consumer_of(bootstrap, name, isolation_level="read_committed")
    assert [record.value for record in read(consumer, 2)] == [b"0", b"2"]
    consumer.close()
    producer.begin_transaction()
    producer.send(name, b"late").get(TIMEOUT_S)
    newer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    newer.init_transactions()
    with pytest.raises(KafkaError):
        producer.commit_transaction()
    newer.close()
    producer.close(timeout=1)


@behaviour("brokers, quorum, features, users")
def test_the_quorum_scram_users_and_log_dirs_are_described(admin):
    quorum = admin.describe_metadata_quorum()
    assert "leader_id" in str(quorum)
    assert admin.describe_user_scram_credentials() in ([], {})
    assert len(admin.describe_log_dirs()) == 3


@behaviour("replicas, leaders, log dirs")
def test_a_partition_can_be_reassigned_to_other_brokers(admin, name):
    admin.create_topics([NewTopic(name, replica_assignments={0: [1, 2]})])
    partition = TopicPartition(name, 0)
    admin.wait_for_topics([name])
    admin.alter_partition_reassignments({partition: [3, 1]})
    deadline_s = time.monotonic() + TIMEOUT_S
    while admin.list_partition_reassignments([partition]):
        assert time.monotonic() < deadline_s
    while sorted(admin.describe_topics([name])[0]["partitions"][0]["replica_nodes"]) != [1, 3]:
        assert time.monotonic() < deadline_s
    (described,) = admin.describe_topic_partitions([name])["topics"]
    assert described["partitions"][0]["replica_nodes"][0] == 3


@behaviour("groups and their offsets administered")
def test_an_admin_lists_alters_and_deletes_groups_and_offsets(bootstrap, admin, name):
    admin.create_topics([NewTopic(name, 1, 3)])
    partition = TopicPartition(name, 0)
    consumer = consumer_of(bootstrap, group_id=name, enable_auto_commit=False)
    consumer.assign([partition])
    consumer.commit({partition: OffsetAndMetadata(7, "", -1)})
    consumer.close()
    assert admin.list_group_offsets({name: [partition]})[name][partition].offset == 7
    assert name in str(admin.list_groups())
    admin.alter_group_offsets(name, {partition: OffsetAndMetadata(3, "", -1)})
    assert admin.list_group_offsets({name: [partition]})[name][partition].offset == 3
    admin.delete_groups([name])
    assert name not in str(admin.list_groups())
