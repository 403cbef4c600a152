"""confluent-kafka (librdkafka) against the Kafka listener, with nothing changed but `bootstrap.servers`."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    ElectionType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from tests.support.klamm_process import running_cluster
from tests.support.waiting import wait_until

COUNT = 500
TIMEOUT_S = 60
ACL = AclBinding(
    ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW
)
ANY_ACL = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


def behaviour(text):
    return pytest.mark.behaviour("confluent-kafka", text)


@pytest.fixture
def admin(bootstrap):
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def topic(admin, name, wait_until_known):
    admin.create_topics([NewTopic(name, 3, 3)])[name].result(TIMEOUT_S)
    wait_until_known(name)
    return name


def read(consumer, count):
    records = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while len(records) < count:
        assert time.monotonic() < deadline_s, f"{len(records)} of {count} records"
        for record in consumer.consume(count - len(records), 0.5):
            assert not record.error(), record.error()
            records.append(record)
    return records


def group_config(bootstrap, group, **config):
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **config,
    }


@behaviour("produces and consumes with every codec")
@behaviour("produces without duplicates (idempotent)")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_an_idempotent_producers_records_come_back_in_order(bootstrap, topic, codec):
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": codec})
    failures = []
    for number in range(COUNT):
        producer.produce(
            topic,
            b"v%d" % number,
            key=b"k%d" % (number % 7),
            on_delivery=lambda error, _: error and failures.append(error),
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert failures == []
    consumer = Consumer(group_config(bootstrap, topic))
    consumer.subscribe([topic])
    seen = {}
    for record in read(consumer, COUNT):
        seen.setdefault(record.key(), []).append(int(record.value()[1:]))
    assert seen == {b"k%d" % key: list(range(key, COUNT, 7)) for key in range(7)}
    consumer.close()


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param("range", marks=behaviour("groups rebalance while they consume")),
        pytest.param("cooperative-sticky", marks=behaviour("groups rebalance cooperatively")),
    ],
)
def test_a_second_group_member_gets_partitions_and_no_committed_record_again(bootstrap, topic, strategy):
    config = group_config(bootstrap, topic, **{"partition.assignment.strategy": strategy})
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number, partition=number % 3)
    producer.flush(TIMEOUT_S)
    first, second = Consumer(config), Consumer(config)
    first.subscribe([topic])
    assert len(read(first, COUNT)) == COUNT
    first.commit(asynchronous=False)
    second.subscribe([topic])
    deadline_s = time.monotonic() + TIMEOUT_S
    while not (first.assignment() and second.assignment()) or len(first.assignment() + second.assignment()) != 3:
        assert first.poll(0.1) is None
        assert second.poll(0.1) is None
        assert time.monotonic() < deadline_s
    committed = first.committed([TopicPartition(topic, number) for number in range(3)], timeout=TIMEOUT_S)
    assert sum(one.offset for one in committed) == COUNT
    first.close()
    second.close()


@behaviour("static members keep their partitions")
def test_a_static_member_comes_back_to_its_partitions(bootstrap, topic):
    config = group_config(bootstrap, topic, **{"group.instance.id": "one"})
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"a", partition=0)
    producer.flush(TIMEOUT_S)
    for _ in range(2):
        consumer = Consumer(config)
        consumer.subscribe([topic])
        assert len(read(consumer, 1)) == 1
        assert len(consumer.assignment()) == 3
        consumer.close()


@behaviour("offsets by time, at both ends, records deleted")
def test_offsets_are_found_by_time_and_at_both_ends(bootstrap, topic):
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(topic, b"x", partition=0, timestamp=1_000 * number + 1_000)
    producer.flush(TIMEOUT_S)
    consumer = Consumer(group_config(bootstrap, topic))
    partition = TopicPartition(topic, 0)
    assert consumer.get_watermark_offsets(partition, timeout=TIMEOUT_S) == (0, 10)
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, 5_500)], timeout=TIMEOUT_S)
    assert found.offset == 5
    consumer.close()


@behaviour("topics, partitions, configs")
def test_an_admin_creates_extends_describes_and_deletes_a_topic(bootstrap, admin, topic):
    with pytest.raises(KafkaException) as refusal:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)
    assert refusal.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(TIMEOUT_S)
    # Any broker answers, and each learns of it a moment later.
    deadline_s = time.monotonic() + TIMEOUT_S
    while len((listed := admin.list_topics(topic, timeout=TIMEOUT_S)).topics[topic].partitions) != 5:
        assert time.monotonic() < deadline_s, listed.topics
    assert sorted(listed.brokers) == [1, 2, 3]
    assert topic in admin.list_topics(timeout=TIMEOUT_S).topics
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (described,) = admin.describe_configs([resource]).values()
    assert described.result(TIMEOUT_S)["min.insync.replicas"].value == "2"
    # While a coordinator loads its shards, it answers with an error.
    while errors := admin.list_consumer_groups().result(TIMEOUT_S).errors:
        assert time.monotonic() < deadline_s, errors
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)


@behaviour("reads, processes and writes in transactions")
def test_transactions_move_records_and_offsets_together(bootstrap, topic, admin, name):
    target = f"{name}-out"
    admin.create_topics([NewTopic(target, 1, 3)])[target].result(TIMEOUT_S)
    source = Producer({"bootstrap.servers": bootstrap})
    for number in range(30):
        source.produce(topic, b"%d" % number, partition=0)
    source.flush(TIMEOUT_S)
    consumer = Consumer(group_config(bootstrap, name, **{"isolation.level": "read_committed"}))
    consumer.subscribe([topic])
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    for round_number in range(3):
        records = read(consumer, 10)
        producer.begin_transaction()
        for record in records:
            producer.produce(target, record.value() if round_number != 1 else b"never seen")
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
        if round_number == 1:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
            committed = consumer.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S)
            assert [one.offset for one in committed] == [10 * round_number + 10]
    reader = Consumer(group_config(bootstrap, target, **{"isolation.level": "read_committed"}))
    reader.subscribe([target])
    values = [int(record.value()) for record in read(reader, 20)]
    assert values == [*range(10), *range(20, 30)]
    assert reader.poll(1) is None
    reader.close()
    consumer.close()


@behaviour("a newer producer fences the older one")
def test_a_newer_producer_fences_the_older_one(bootstrap, topic, name):
    config = {"bootstrap.servers": bootstrap, "transactional.id": name}
    old, new = Producer(config), Producer(config)
    old.init_transactions(TIMEOUT_S)
    old.begin_transaction()
    old.produce(topic, b"from the past", partition=0)
    assert old.flush(TIMEOUT_S) == 0
    new.init_transactions(TIMEOUT_S)
    with pytest.raises(KafkaException) as refusal:
        old.commit_transaction(TIMEOUT_S)
    assert refusal.value.args[0].fatal()
    new.begin_transaction()
    new.produce(topic, b"from now", partition=0)
    new.commit_transaction(TIMEOUT_S)
    consumer = Consumer(group_config(bootstrap, name, **{"isolation.level": "read_committed"}))
    consumer.subscribe([topic])
    assert [record.value() for record in read(consumer, 1)] == [b"from now"]
    consumer.close()


# The new group protocol (KIP-848): heartbeats are due every five seconds


def until(condition, *consumers):
    """Polls them until it holds."""

    def poll():
        for consumer in consumers:
            for record in consumer.consume(100, 0.1):
                assert not record.error(), record.error()

    wait_until(condition, lambda: [consumer.assignment() for consumer in consumers], between=poll)


def owned(consumer):
    return {(one.topic, one.partition) for one in consumer.assignment()}


def new_consumer(bootstrap, group, **config):
    return Consumer(group_config(bootstrap, group, **{"group.protocol": "consumer"}, **config))


@behaviour("groups of the new protocol (KIP-848)")
def test_only_moved_partitions_are_revoked_in_the_new_group_protocol(bootstrap, admin, topic):
    first, second = new_consumer(bootstrap, topic), new_consumer(bootstrap, topic)
    moves = []
    first.subscribe(
        [topic],
        on_assign=lambda _, partitions: moves.append(("+", len(partitions))),
        on_revoke=lambda _, partitions: moves.append(("-", len(partitions))),
    )
    until(lambda: len(owned(first)) == 3, first)
    second.subscribe([topic])
    until(lambda: len(owned(first)) + len(owned(second)) == 3 and owned(second), first, second)
    assert not owned(first) & owned(second)
    assert ("+", 3) in moves
    assert ("-", 1) in moves
    (group,) = [one for one in admin.list_consumer_groups().result(TIMEOUT_S).valid if one.group_id == topic]
    assert group.type.name == "CONSUMER"
    described = admin.describe_consumer_groups([topic])[topic].result(TIMEOUT_S)
    assert (described.state.name, len(described.members)) == ("STABLE", 2)
    left = owned(first) | owned(second)
    first.close()
    until(lambda: owned(second) == left, second)
    second.close()


@behaviour("groups of the new protocol (KIP-848)")
def test_the_next_member_of_the_new_group_protocol_begins_at_the_committed_offsets(bootstrap, topic):
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number, partition=number % 3)
    producer.flush(TIMEOUT_S)
    first = new_consumer(bootstrap, topic)
    first.subscribe([topic])
    begun = read(first, COUNT // 2)
    first.commit(asynchronous=False)
    first.close()
    second = new_consumer(bootstrap, topic, **{"group.remote.assignor": "range"})
    second.subscribe([topic])
    rest = read(second, COUNT - len(begun))
    assert {int(one.value()) for one in begun + rest} == set(range(COUNT))
    second.close()


@behaviour("groups of the new protocol (KIP-848)")
def test_a_static_member_of_the_new_group_protocol_gets_its_partitions_back(bootstrap, topic):
    static, other = new_consumer(bootstrap, topic, **{"group.instance.id": "i"}), new_consumer(bootstrap, topic)
    static.subscribe([topic])
    other.subscribe([topic])
    until(lambda: len(owned(static)) + len(owned(other)) == 3 and owned(static) and owned(other), static, other)
    had = owned(static)
    static.close()
    back = new_consumer(bootstrap, topic, **{"group.instance.id": "i"})
    back.subscribe([topic])
    until(lambda: owned(back) == had, back, other)
    assert len(owned(other)) == 3 - len(had)
    back.close()
    other.close()


@behaviour("groups of the new protocol (KIP-848)")
def test_a_regex_subscription_of_the_new_group_protocol_finds_topics_created_later(bootstrap, admin, name):
    def create(suffix):
        admin.create_topics([NewTopic(f"{name}-{suffix}", 1, 1)])[f"{name}-{suffix}"].result(TIMEOUT_S)

    create("1")
    consumer = new_consumer(bootstrap, name)
    consumer.subscribe([f"^{name}-[0-9]"])
    until(lambda: owned(consumer) == {(f"{name}-1", 0)}, consumer)
    create("2")
    create("x")
    until(lambda: owned(consumer) == {(f"{name}-1", 0), (f"{name}-2", 0)}, consumer)
    consumer.close()


@behaviour("groups of the new protocol (KIP-848)")
def test_members_of_the_new_group_protocol_keep_their_partitions_over_a_restart(tmp_path):
    """After their coordinator has restarted at the same address, members keep their partitions and their epochs."""
    with running_cluster(tmp_path) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.kafka_bootstrap})
        admin.create_topics([NewTopic("t", 4, 1)])["t"].result(TIMEOUT_S)
        team = [new_consumer(cluster.kafka_bootstrap, "g") for _ in range(2)]
        lost = []
        for consumer in team:
            consumer.subscribe(["t"], on_lost=lambda _, partitions: lost.append(partitions))
        until(lambda: [len(owned(consumer)) for consumer in team] == [2, 2], *team)
        had = [owned(consumer) for consumer in team]
        cluster.kill()
        cluster.start()
        producer = Producer({"bootstrap.servers": cluster.kafka_bootstrap})
        for number in range(40):
            producer.produce("t", b"%d" % number, partition=number % 4)
        assert producer.flush(TIMEOUT_S) == 0
        seen = set()
        deadline_s = time.monotonic() + TIMEOUT_S
        while len(seen) < 40:
            assert time.monotonic() < deadline_s, len(seen)
            for consumer in team:
                seen.update(int(one.value()) for one in consumer.consume(40, 0.2) if not one.error())
        assert [owned(consumer) for consumer in team] == had
        assert lost == []
        for consumer in team:
            consumer.commit(asynchronous=False)
            consumer.close()


@behaviour("groups and their offsets administered")
def test_an_admin_describes_alters_and_deletes_groups_and_offsets(bootstrap, admin, topic):
    consumer = Consumer(group_config(bootstrap, topic))
    consumer.subscribe([topic])
    deadline_s = time.monotonic() + TIMEOUT_S
    while not consumer.assignment():
        consumer.poll(0.1)
        assert time.monotonic() < deadline_s
    consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    described = admin.describe_consumer_groups([topic])[topic].result(TIMEOUT_S)
    (member,) = described.members
    assert len(member.assignment.topic_partitions) == 3
    consumer.close()
    group = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0)])

    def committed():
        (found,) = admin.list_consumer_group_offsets([group])[topic].result(TIMEOUT_S).topic_partitions
        return found.offset

    assert committed() == 7
    changed = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0, 3)])
    admin.alter_consumer_group_offsets([changed])[topic].result(TIMEOUT_S)
    assert committed() == 3
    admin.delete_consumer_groups([topic])[topic].result(TIMEOUT_S)
    with pytest.raises(KafkaException) as refusal:
        admin.delete_consumer_groups([topic])[topic].result(TIMEOUT_S)
    assert refusal.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


@behaviour("brokers, quorum, features, users")
def test_the_cluster_is_described(admin):
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert sorted(node.id for node in cluster.nodes) == [1, 2, 3]
    assert cluster.controller.id in (1, 2, 3)
    assert admin.describe_user_scram_credentials().result(TIMEOUT_S) == {}


@behaviour("replicas, leaders, log dirs")
def test_a_preferred_election_that_is_not_needed_is_reported(admin, topic):
    partition = TopicPartition(topic, 0)
    elected = admin.elect_leaders(ElectionType.PREFERRED, [partition]).result(TIMEOUT_S)
    assert elected[partition].code() == KafkaError.ELECTION_NOT_NEEDED


@behaviour("offsets by time, at both ends, records deleted")
def test_delete_records_moves_the_earliest_offset(bootstrap, admin, topic):
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(10):
        producer.produce(topic, b"x", partition=0)
    producer.flush(TIMEOUT_S)
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 4)]).values()
    assert deleted.result(TIMEOUT_S).low_watermark == 4
    (first,) = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.earliest()}).values()
    assert first.result(TIMEOUT_S).offset == 4


@behaviour("names errors as with Kafka")
def test_errors_have_kafkas_names(bootstrap, admin, name):
    def code_of(new_topic):
        with pytest.raises(KafkaException) as refusal:
            admin.create_topics([new_topic])[new_topic.topic].result(TIMEOUT_S)
        return refusal.value.args[0].code()

    assert code_of(NewTopic("a b", 1, 1)) == KafkaError.TOPIC_EXCEPTION
    assert code_of(NewTopic(name, 1, 9)) == KafkaError.INVALID_REPLICATION_FACTOR
    assert code_of(NewTopic(name, 1, 1, config={"no.such.config": "1"})) == KafkaError.INVALID_CONFIG
    # It hides the same answer of describe_acls, and finds none.
    for answer in (*admin.create_acls([ACL]).values(), *admin.delete_acls([ANY_ACL]).values()):
        with pytest.raises(KafkaException) as refusal:
            answer.result(TIMEOUT_S)
        assert refusal.value.args[0].code() == KafkaError.SECURITY_DISABLED
    admin.create_topics([NewTopic(name, 1, 3, config={"max.message.bytes": "1000"})])[name].result(TIMEOUT_S)
    codes = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(name, b"x" * 2_000, on_delivery=lambda error, _: codes.append(error.code()))
    assert producer.flush(TIMEOUT_S) == 0
    assert codes == [KafkaError.MSG_SIZE_TOO_LARGE]
