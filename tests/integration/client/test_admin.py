"""Tests the Admin against real services."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from klamm import (
    Admin,
    AsyncAdmin,
    Consumer,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from klamm.admin import ConfigChange, ConfigOperation, ConfigResource, ConfigResourceType, ConfigSource
from klamm.errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    NoBrokerError,
    NonEmptyGroupError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from klamm.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from tests.support.klamm_process import running_cluster
from tests.support.waiting import patience, wait_until


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory):
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster.bootstrap


@pytest.fixture(scope="module")
def admin(bootstrap):
    with Admin(bootstrap_servers=bootstrap) as admin:
        yield admin


@pytest.fixture
def topic(admin, request) -> str:
    """Creates a topic with two partitions for this test only."""
    name = request.node.name.replace("[", "-").replace("]", "")
    admin.create_topics([NewTopic(name, partition_count=2)])
    return name


def config_of(topic: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, topic)


def produce(bootstrap: str, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0, timestamp_ms=1_000 * number)


def test_a_topic_is_created_described_grown_and_deleted(admin):
    created = admin.create_topics([NewTopic("life", 3, configs={"retention.ms": "1000"})])["life"]
    assert (created.partition_count, created.replication_factor) == (3, 1)
    described = admin.describe_topics(["life"])["life"]
    assert described.topic_id == created.topic_id
    assert [partition.partition for partition in described.partitions] == [0, 1, 2]
    assert all(partition.leader in partition.isr for partition in described.partitions)
    admin.create_partitions({"life": 5})
    assert len(admin.list_topics()["life"].partitions) == 5
    admin.delete_topics(["life"])
    assert "life" not in admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_topics(["life"])


def test_validation_creates_nothing(admin):
    checked = admin.create_topics([NewTopic("only-checked", 4)], validate_only=True)["only-checked"]
    assert checked.partition_count == 4
    assert checked.topic_id == uuid.UUID(int=0) or "only-checked" not in admin.list_topics()
    assert "only-checked" not in admin.list_topics()


@pytest.mark.parametrize(
    ("new", "error"),
    [
        (NewTopic("spaces are not legal", 1), InvalidTopicError),
        (NewTopic("too-many-replicas", 1, 7), InvalidReplicationFactorError),
        (NewTopic("no-partitions", 0), InvalidPartitionsError),
        (NewTopic("odd-config", 1, configs={"retention.hours": "1"}), InvalidConfigError),
    ],
)
def test_a_topic_that_cannot_be_created_is_refused_with_an_error_that_names_it(admin, new, error):
    with pytest.raises(error) as raised:
        admin.create_topics([new])
    assert new.name in str(raised.value)


def test_create_topics_raises_the_first_failure_and_notes_the_others(admin, topic):
    with pytest.raises(TopicAlreadyExistsError, match=topic) as raised:
        admin.create_topics([NewTopic(topic), NewTopic("created-all-the-same", 1), NewTopic("a b")])
    (note,) = raised.value.__notes__
    assert "INVALID_TOPIC_EXCEPTION" in note
    assert "created-all-the-same" in admin.list_topics()


def test_the_partition_count_of_a_topic_cannot_shrink(admin, topic):
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic: 1})


def test_internal_topics_are_listed_only_when_asked_for(admin):
    assert admin.list_group_offsets("asking-creates-the-internal-topic") == {}
    assert "__consumer_offsets" not in admin.list_topics()
    assert admin.list_topics(include_internal=True)["__consumer_offsets"].internal


def test_described_configs_name_their_source(admin, topic):
    resource = config_of(topic)
    before = admin.describe_configs([resource], include_documentation=True)[resource]["retention.ms"]
    assert before.source is ConfigSource.DEFAULT
    assert before.documentation
    admin.incremental_alter_configs({resource: [ConfigChange("retention.ms", "5000")]})
    after = admin.describe_configs([resource], names=["retention.ms"])[resource]
    assert list(after) == ["retention.ms"]
    assert (after["retention.ms"].value, after["retention.ms"].source) == ("5000", ConfigSource.DYNAMIC_TOPIC)
    admin.incremental_alter_configs({resource: [ConfigChange("retention.ms", operation=ConfigOperation.DELETE)]})
    assert admin.describe_configs([resource])[resource]["retention.ms"].value == before.value


def test_append_and_subtract_change_a_list_config(admin, topic):
    resource = config_of(topic)
    append = ConfigChange("cleanup.policy", "compact", ConfigOperation.APPEND)
    admin.incremental_alter_configs({resource: [append]})
    assert admin.describe_configs([resource])[resource]["cleanup.policy"].value == "delete,compact"
    subtract = ConfigChange("cleanup.policy", "delete", ConfigOperation.SUBTRACT)
    admin.incremental_alter_configs({resource: [subtract]})
    assert admin.describe_configs([resource])[resource]["cleanup.policy"].value == "compact"


@pytest.mark.parametrize(("name", "value"), [("retention.ms", "soon"), ("no.such.config", "1")])
def test_a_wrong_config_changes_nothing(admin, topic, name, value):
    resource = config_of(topic)
    changes = [ConfigChange("segment.ms", "9999"), ConfigChange(name, value)]
    with pytest.raises(InvalidConfigError, match=name):
        admin.incremental_alter_configs({resource: changes})
    assert admin.describe_configs([resource])[resource]["segment.ms"].value != "9999"


def test_describe_cluster_lists_controllers_brokers_and_coordinators(admin):
    cluster = admin.describe_cluster()
    assert cluster.cluster_id
    assert [len(servers) for servers in (cluster.controllers, cluster.brokers, cluster.coordinators)] == [1, 1, 1]
    assert not cluster.brokers[0].fenced
    assert cluster.metadata_end_index > 0


def test_list_offsets_finds_offsets_by_time_and_at_both_ends(admin, bootstrap, topic):
    produce(bootstrap, topic, 50)
    tp, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    offsets = [
        admin.list_offsets({tp: at})[tp].offset
        for at in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, 24_001, 10**15)
    ]
    assert offsets == [0, 50, 49, 25, -1]
    assert admin.list_offsets({empty: LATEST_TIMESTAMP})[empty].offset == 0


def test_records_are_deleted_up_to_an_offset(admin, bootstrap, topic):
    produce(bootstrap, topic, 50)
    tp = TopicPartition(topic, 0)
    assert admin.delete_records({tp: 20}) == {tp: 20}
    assert admin.list_offsets({tp: EARLIEST_TIMESTAMP})[tp].offset == 20
    with pytest.raises(OffsetOutOfRangeError, match=f"{topic}-0"):
        admin.delete_records({tp: 51})
    assert admin.delete_records({tp: -1}) == {tp: 50}


def test_describe_log_dirs_counts_the_bytes_of_producers_and_consumers(admin, bootstrap, topic):
    def counted():
        ((log_dir,),) = admin.describe_log_dirs(topics=[topic]).values()
        return {replica.tp.partition: (replica.in_bytes, replica.out_bytes) for replica in log_dir.replicas}

    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"v" * 1000, partition=0).result(patience())
    in_bytes, out_bytes = counted()[0]
    assert (in_bytes > 1000, out_bytes) == (True, 0)
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning(TopicPartition(topic, 0))
        while not consumer.poll(timeout_ms=500):
            pass
    assert counted()[0] == (in_bytes, in_bytes)
    assert {number for number, each in counted().items() if any(each)} == {0}


def test_describe_log_dirs_reports_disk_space_and_replica_sizes(admin, bootstrap, topic):
    produce(bootstrap, topic, 50)
    ((broker_id, (log_dir,)),) = admin.describe_log_dirs().items()
    assert log_dir.online
    assert 0 < log_dir.usable_bytes <= log_dir.total_bytes
    replica = next(each for each in log_dir.replicas if each.tp == TopicPartition(topic, 0))
    assert replica.size_bytes > 0
    assert (replica.log_start_offset, replica.log_end_offset) == (0, 50)
    assert admin.describe_log_dirs([broker_id]).keys() == {broker_id}


def test_a_group_is_described_and_can_be_changed_and_deleted_only_when_empty(admin, bootstrap, topic):
    group, tp = topic, TopicPartition(topic, 0)
    with pytest.raises(GroupIdNotFoundError):
        admin.describe_groups([group])
    config = {"bootstrap_servers": bootstrap, "group_id": group, "client_id": "the-member"}
    with Consumer(**config, auto_offset_reset="earliest", heartbeat_interval_ms=100) as consumer:
        consumer.subscribe([topic])
        wait_until(consumer.assignment, between=lambda: consumer.poll(timeout_ms=100))
        described = admin.describe_groups([group])[group]
        assert (described.state, described.protocol_type, described.assignor) == ("Stable", "consumer", "range")
        (member,) = described.members
        assert described.leader == member.member_id
        assert (member.client_id, member.topics) == ("the-member", (topic,))
        assert member.assignment == (tp, TopicPartition(topic, 1))
        assert admin.list_groups(states=["stable"])[group].state == "Stable"
        assert group not in admin.list_groups(states=["empty"])
        with pytest.raises(NonEmptyGroupError):
            admin.delete_groups([group])
        with pytest.raises(NonEmptyGroupError):
            admin.alter_group_offsets(group, {tp: 3})
        consumer.commit({tp: 1})
        with pytest.raises(GroupSubscribedToTopicError):
            admin.delete_group_offsets(group, [tp])
    assert admin.describe_groups([group])[group].state == "Empty"
    admin.alter_group_offsets(group, {tp: OffsetAndMetadata(3, "by hand")})
    assert admin.list_group_offsets(group)[tp] == OffsetAndMetadata(3, "by hand")
    assert admin.list_group_offsets(group, [TopicPartition("unheard-of", 0)]) == {}
    admin.delete_group_offsets(group, [tp])
    assert tp not in admin.list_group_offsets(group)
    admin.delete_groups([group])
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_groups([group])


def test_group_members_are_removed_by_instance_id_or_all_at_once(admin, bootstrap, topic):
    """Covers kip-345 and kip-571.

    The removed consumers died without leaving, and their sessions would last for a while.
    """

    def members() -> set[str | None]:
        return {member.group_instance_id for member in admin.describe_groups([topic])[topic].members}

    config = {"bootstrap_servers": bootstrap, "group_id": topic, "session_timeout_ms": 60_000}
    with Consumer(**config, group_instance_id="one") as one, Consumer(**config, group_instance_id="two") as two:
        for consumer in (one, two):
            consumer.subscribe([topic])
        while not one.assignment() or not two.assignment():
            for consumer in (one, two):
                consumer.poll(timeout_ms=50)
    assert members() == {"one", "two"}

    with pytest.raises(UnknownMemberIdError, match="nobody"):
        admin.remove_group_members(topic, ["nobody", "one"], reason="its machine is gone")
    assert members() == {"two"}
    admin.remove_group_members(topic)
    assert members() == set()
    admin.remove_group_members(topic)
    with pytest.raises(GroupIdNotFoundError):
        admin.remove_group_members(f"{topic}-of-nobody")


def test_the_async_admin_creates_and_lists_topics(bootstrap):
    async def main() -> None:
        async with AsyncAdmin(bootstrap_servers=bootstrap) as admin:
            created = await admin.create_topics([NewTopic("from-asyncio", 1)])
            assert set(created) == {"from-asyncio"}
            assert "from-asyncio" in await admin.list_topics()

    asyncio.run(main())


def test_an_unreachable_cluster_raises_no_broker_error(admin):
    with Admin(bootstrap_servers="127.0.0.1:1") as lost, pytest.raises(NoBrokerError, match=r"127\.0\.0\.1:1"):
        lost.list_topics(timeout_ms=2_000)
