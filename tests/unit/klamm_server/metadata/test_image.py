"""Tests the metadata image against a naive model: nested dicts changed in place, record by record.

The model also proposes the records, so every drawn sequence is one that a correct controller could write.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.acls import AclBinding
from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.metadata_pb2 import (
    CONFIG_RESOURCE_TYPE_BROKER,
    CONFIG_RESOURCE_TYPE_TOPIC,
    AccessControlEntryRecord,
    BrokerChangeRecord,
    BrokerIds,
    ClientQuotaRecord,
    ClusterRecord,
    ClusterSecretRecord,
    ConfigRecord,
    CoordinatorChangeRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntityPart,
    RegisterBrokerRecord,
    RegisterCoordinatorRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    ShardAssignmentRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UnregisterCoordinatorRecord,
    UserScramCredentialRecord,
)
from klamm_server.metadata.entities import ShardImage
from klamm_server.metadata.image import MetadataImage, changed_configs, changed_topics
from klamm_server.metadata.image_records import snapshot_records
from klamm_server.metadata.replay import replay
from klamm_server.net.listeners import Listener, SecurityProtocol, encode
from tests.support import seeds
from tests.support.acl_strategies import BINDINGS

BROKERS = [1, 2, 3, 4]
NAMES = ["a", "b", "a.b", "__consumer_offsets"]


class Twin:
    """The cluster as plain dicts. A `propose_*` draws a possible record and applies it naively."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.index = 0
        self.cluster_id = ""
        self.brokers: dict[int, dict[str, Any]] = {}
        self.coordinators: dict[int, dict[str, Any]] = {}
        self.topics: dict[str, dict[str, Any]] = {}
        self.configs: dict[tuple[int, str, str], str] = {}
        self.shards: dict[tuple[str, int], tuple[int, int, int]] = {}
        self.next_producer_id = 0
        self.acls: dict[uuid.UUID, AclBinding] = {}
        self.cluster_secret = b""
        self.scram_credentials: dict[tuple[str, int], tuple[bytes, bytes, bytes, int]] = {}
        self.client_quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}

    def step(self) -> MetadataRecord:
        proposals = [getattr(self, name) for name in sorted(dir(self)) if name.startswith("propose_")]
        record = self.draw(st.sampled_from(proposals))() or MetadataRecord(no_op=NoOpRecord())
        self.index += 1
        return record

    def propose_cluster(self) -> MetadataRecord | None:
        if self.cluster_id:
            return None
        self.cluster_id = "cluster"
        return MetadataRecord(cluster=ClusterRecord(cluster_id="cluster"))

    def propose_register_broker(self) -> MetadataRecord:
        fields = {
            "incarnation_id": self.draw(st.binary(min_size=16, max_size=16)),
            "broker_epoch": self.index,
            "rack": self.draw(st.sampled_from(["", "r1"])),
            "fenced": self.draw(st.booleans()),
            "log_dir_ids": self.draw(st.lists(st.binary(min_size=16, max_size=16), max_size=2)),
            "static_configs": self.draw(st.dictionaries(st.sampled_from("xyz"), st.text(max_size=3))),
        }
        broker_id = self.draw(st.sampled_from(BROKERS))
        kafka_port = self.draw(st.sampled_from([0, 9092]))
        named = self.draw(st.booleans())
        own = Listener("INTERNAL", SecurityProtocol.GRPC, "h", broker_id), Listener("K", SecurityProtocol.KAFKA, "k", 1)
        plain = [Listener("GRPC", SecurityProtocol.GRPC, "h", broker_id)]
        plain += [Listener("KAFKA", SecurityProtocol.KAFKA, "k", kafka_port)] if kafka_port else []
        self.brokers[broker_id] = {
            **fields,
            "in_controlled_shutdown": False,
            "host": "h",
            "port": broker_id,
            "listeners": own if named else tuple(plain),
        }
        return MetadataRecord(
            register_broker=RegisterBrokerRecord(
                broker_id=broker_id,
                endpoint=Endpoint(host="h", port=broker_id),
                kafka_endpoint=Endpoint(host="k", port=kafka_port) if kafka_port else None,
                listeners=encode(own if named else ()),
                **fields,
            )
        )

    def propose_broker_change(self) -> MetadataRecord | None:
        if not self.brokers:
            return None
        broker_id = self.draw(st.sampled_from(sorted(self.brokers)))
        change = {"fenced": self.draw(st.booleans()), "in_controlled_shutdown": self.draw(st.booleans())}
        self.brokers[broker_id].update(change)
        epoch = self.brokers[broker_id]["broker_epoch"]
        return MetadataRecord(broker_change=BrokerChangeRecord(broker_id=broker_id, broker_epoch=epoch, **change))

    def propose_unregister_broker(self) -> MetadataRecord | None:
        if not self.brokers:
            return None
        broker_id = self.draw(st.sampled_from(sorted(self.brokers)))
        epoch = self.brokers.pop(broker_id)["broker_epoch"]
        return MetadataRecord(unregister_broker=UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch))

    def propose_register_coordinator(self) -> MetadataRecord:
        coordinator_id = self.draw(st.sampled_from([7, 8]))
        fields: dict[str, Any] = {"incarnation_id": bytes(16), "coordinator_epoch": self.index, "fenced": True}
        named = self.draw(st.sampled_from([(), (Listener("INTERNAL", SecurityProtocol.GRPC, "c", 9),)]))
        listeners = named or (Listener("GRPC", SecurityProtocol.GRPC, "c", 9),)
        self.coordinators[coordinator_id] = {**fields, "host": "c", "port": 9, "listeners": listeners}
        return MetadataRecord(
            register_coordinator=RegisterCoordinatorRecord(
                coordinator_id=coordinator_id,
                endpoint=Endpoint(host="c", port=9),
                listeners=encode(named),
                **fields,
            )
        )

    def propose_coordinator_change(self) -> MetadataRecord | None:
        if not self.coordinators:
            return None
        coordinator_id = self.draw(st.sampled_from(sorted(self.coordinators)))
        coordinator = self.coordinators[coordinator_id]
        coordinator["fenced"] = self.draw(st.booleans())
        return MetadataRecord(
            coordinator_change=CoordinatorChangeRecord(
                coordinator_id=coordinator_id,
                coordinator_epoch=coordinator["coordinator_epoch"],
                fenced=coordinator["fenced"],
            )
        )

    def propose_unregister_coordinator(self) -> MetadataRecord | None:
        if not self.coordinators:
            return None
        coordinator_id = self.draw(st.sampled_from(sorted(self.coordinators)))
        epoch = self.coordinators.pop(coordinator_id)["coordinator_epoch"]
        return MetadataRecord(
            unregister_coordinator=UnregisterCoordinatorRecord(coordinator_id=coordinator_id, coordinator_epoch=epoch)
        )

    def propose_topic(self) -> MetadataRecord | None:
        name = self.draw(st.sampled_from(NAMES))
        if name in self.topics:
            return None
        topic_id = uuid.UUID(int=self.index + 1)
        self.topics[name] = {"topic_id": topic_id, "partitions": []}
        return MetadataRecord(topic=TopicRecord(name=name, topic_id=topic_id.bytes))

    def propose_partition(self) -> MetadataRecord | None:
        if not self.topics:
            return None
        topic = self.topics[self.draw(st.sampled_from(sorted(self.topics)))]
        replicas = self.draw(st.lists(st.sampled_from(BROKERS), min_size=1, unique=True))
        isr = replicas[: self.draw(st.integers(0, len(replicas)))]
        leader = self.draw(st.sampled_from([*isr, -1]))
        partition = {
            "replicas": replicas,
            "isr": isr,
            "leader": leader,
            "leader_epoch": self.draw(st.integers(0, 9)),
            "partition_epoch": self.draw(st.integers(0, 9)),
        }
        topic["partitions"].append(dict(partition))
        return MetadataRecord(
            partition=PartitionRecord(
                topic_id=topic["topic_id"].bytes, partition=len(topic["partitions"]) - 1, **partition
            )
        )

    def propose_partition_change(self) -> MetadataRecord | None:
        topics = {name: topic for name, topic in self.topics.items() if topic["partitions"]}
        if not topics:
            return None
        topic = topics[self.draw(st.sampled_from(sorted(topics)))]
        number = self.draw(st.integers(0, len(topic["partitions"]) - 1))
        partition = topic["partitions"][number]
        record = PartitionChangeRecord(topic_id=topic["topic_id"].bytes, partition=number)
        if self.draw(st.booleans()):
            partition["replicas"] = self.draw(st.permutations(BROKERS))
            record.replicas.CopyFrom(BrokerIds(broker_ids=partition["replicas"]))
        isr = self.draw(st.lists(st.sampled_from(partition["replicas"]), unique=True))
        if isr != partition["isr"]:
            partition["isr"] = isr
            record.isr.CopyFrom(BrokerIds(broker_ids=isr))
        if self.draw(st.booleans()) or partition["leader"] not in isr:
            partition["leader"] = record.leader = self.draw(st.sampled_from([*isr, -1]))
            partition["leader_epoch"] += 1
        partition["partition_epoch"] += 1
        return MetadataRecord(partition_change=record)

    def propose_remove_topic(self) -> MetadataRecord | None:
        if not self.topics:
            return None
        name = self.draw(st.sampled_from(sorted(self.topics)))
        topic_id = self.topics.pop(name)["topic_id"]
        kind = CONFIG_RESOURCE_TYPE_TOPIC
        self.configs = {key: value for key, value in self.configs.items() if key[:2] != (kind, name)}
        self.shards = {key: value for key, value in self.shards.items() if key[0] != name}
        return MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=topic_id.bytes))

    def propose_config(self) -> MetadataRecord:
        kind, resource = self.draw(
            st.sampled_from(
                [(CONFIG_RESOURCE_TYPE_BROKER, ""), (CONFIG_RESOURCE_TYPE_BROKER, "1")]
                + [(CONFIG_RESOURCE_TYPE_TOPIC, name) for name in sorted(self.topics)]
            )
        )
        name = self.draw(st.sampled_from(["k1", "k2"]))
        value = self.draw(st.none() | st.sampled_from(["", "v"]))
        if value is None:
            self.configs.pop((kind, resource, name), None)
        else:
            self.configs[kind, resource, name] = value
        return MetadataRecord(config=ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value))

    def propose_shard_assignment(self) -> MetadataRecord | None:
        shards = [(name, number) for name, topic in self.topics.items() for number in range(len(topic["partitions"]))]
        if not shards:
            return None
        topic, shard = self.draw(st.sampled_from(sorted(shards)))
        owner = self.draw(st.sampled_from([*self.coordinators, -1]))
        former = self.draw(st.none() | st.integers(0, 5))
        coordinator_epoch = self.index + self.draw(st.integers(0, 100_000)) if self.draw(st.booleans()) else 0
        _, _, _, last, _ = self.shards.get((topic, shard), (0, 0, 0, -1, None))
        grown = max(coordinator_epoch, self.index, last + 1)
        self.shards[topic, shard] = (owner, 1000 + shard, self.index, grown, former)
        return MetadataRecord(
            shard_assignment=ShardAssignmentRecord(
                topic=topic,
                shard=shard,
                coordinator_id=owner,
                producer_id=1000 + shard,
                writer_epoch=self.index,
                coordinator_epoch=coordinator_epoch,
                former_producer_id=former,
            )
        )

    def propose_producer_ids(self) -> MetadataRecord:
        self.next_producer_id += self.draw(st.integers(0, 1000))
        return MetadataRecord(producer_ids=ProducerIdsRecord(next_producer_id=self.next_producer_id))

    def propose_access_control_entry(self) -> MetadataRecord | None:
        binding = self.draw(BINDINGS)
        if binding in self.acls.values():
            return None
        acl_id = uuid.UUID(int=self.index)
        self.acls[acl_id] = binding
        return MetadataRecord(access_control_entry=AccessControlEntryRecord(id=acl_id.bytes, **binding._asdict()))

    def propose_remove_access_control_entry(self) -> MetadataRecord | None:
        if not self.acls:
            return None
        acl_id = self.draw(st.sampled_from(sorted(self.acls)))
        del self.acls[acl_id]
        return MetadataRecord(remove_access_control_entry=RemoveAccessControlEntryRecord(id=acl_id.bytes))

    def propose_cluster_secret(self) -> MetadataRecord | None:
        if self.cluster_secret:
            return None
        self.cluster_secret = self.draw(st.binary(min_size=1, max_size=4))
        return MetadataRecord(cluster_secret=ClusterSecretRecord(secret=self.cluster_secret))

    def propose_user_scram_credential(self) -> MetadataRecord:
        key = (self.draw(st.sampled_from("uv")), self.draw(st.sampled_from([1, 2])))
        salt, stored, serving = self.draw(
            st.tuples(st.binary(max_size=2), st.binary(max_size=2), st.binary(max_size=2))
        )
        self.scram_credentials[key] = (salt, stored, serving, self.index)
        record = UserScramCredentialRecord(
            name=key[0], mechanism=key[1], salt=salt, stored_key=stored, server_key=serving, iterations=self.index
        )
        return MetadataRecord(user_scram_credential=record)

    def propose_remove_user_scram_credential(self) -> MetadataRecord | None:
        if not self.scram_credentials:
            return None
        name, mechanism = self.draw(st.sampled_from(sorted(self.scram_credentials)))
        del self.scram_credentials[name, mechanism]
        removal = RemoveUserScramCredentialRecord(name=name, mechanism=mechanism)
        return MetadataRecord(remove_user_scram_credential=removal)

    def propose_client_quota(self) -> MetadataRecord | None:
        entity = self.draw(st.sampled_from([(("user", "u"),), (("client-id", None), ("user", "u")), (("ip", ""),)]))
        key = self.draw(st.sampled_from(["producer_byte_rate", "request_percentage"]))
        parts = [QuotaEntityPart(type=kind, name=name) for kind, name in entity]
        if self.draw(st.booleans()):
            self.client_quotas.setdefault(entity, {})[key] = self.index / 2
            record = ClientQuotaRecord(entity=parts, key=key, value=self.index / 2)
            return MetadataRecord(client_quota=record)
        if key not in self.client_quotas.get(entity, {}):
            return None
        del self.client_quotas[entity][key]
        if not self.client_quotas[entity]:
            del self.client_quotas[entity]
        # The order of an entity's parts has no meaning.
        return MetadataRecord(client_quota=ClientQuotaRecord(entity=reversed(parts), key=key, remove=True))

    def assert_equals(self, image: MetadataImage) -> None:
        assert image.client_quotas == self.client_quotas
        assert image.acls.by_id == self.acls
        assert image.cluster_id == self.cluster_id
        assert image.end_index == self.index
        assert image.next_producer_id == self.next_producer_id
        assert image.cluster_secret == self.cluster_secret
        assert {
            (name, mechanism.number): (
                scram_credential.salt,
                scram_credential.stored_key,
                scram_credential.server_key,
                scram_credential.iterations,
            )
            for (name, mechanism), scram_credential in image.scram_credentials.items()
        } == self.scram_credentials
        assert {i: _fields(broker) for i, broker in image.brokers.items()} == {
            i: {**broker, "broker_id": i, "log_dir_ids": tuple(broker["log_dir_ids"])}
            for i, broker in self.brokers.items()
        }
        assert {i: _fields(coordinator) for i, coordinator in image.coordinators.items()} == {
            i: {**coordinator, "coordinator_id": i} for i, coordinator in self.coordinators.items()
        }
        assert {
            name: {
                "topic_id": topic.topic_id,
                "partitions": [
                    {"replicas": list(p.replicas), "isr": list(p.isr), "leader": p.leader}
                    | {"leader_epoch": p.leader_epoch, "partition_epoch": p.partition_epoch}
                    for p in topic.partitions
                ],
            }
            for name, topic in image.topics_by_name.items()
        } == self.topics
        assert {topic.topic_id: topic for topic in image.topics_by_name.values()} == image.topics_by_id
        assert {
            (kind, resource, name): value
            for (kind, resource), settings_ in image.configs.items()
            for name, value in settings_.items()
        } == self.configs
        assert all(image.configs.values())
        assert {
            key: (
                shard.coordinator_id,
                shard.producer_id,
                shard.writer_epoch,
                shard.coordinator_epoch,
                shard.former_producer_id,
            )
            for key, shard in image.shards.items()
        } == self.shards


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in type(value).__slots__}


@given(st.data())
@settings(max_examples=seeds.examples(60), deadline=None)
def test_replayed_records_equal_a_naive_model_and_older_images_do_not_change(data: st.DataObject) -> None:
    twin = Twin(data.draw)
    image = MetadataImage.empty()
    for batch_length in data.draw(st.lists(st.integers(1, 12), max_size=8)):
        frozen = replay(MetadataImage.empty(), list(snapshot_records(image)), image.end_index)
        records = [twin.step() for _ in range(batch_length)]
        after = replay(image, records, twin.index)
        assert image == frozen
        image = after
    twin.assert_equals(image)


@given(st.data())
@settings(max_examples=seeds.examples(40), deadline=None)
def test_a_snapshot_replays_to_the_same_image_in_batches_of_any_size(data: st.DataObject) -> None:
    twin = Twin(data.draw)
    records = [twin.step() for _ in range(data.draw(st.integers(0, 60)))]
    image = replay(MetadataImage.empty(), records, twin.index)
    assert replay(MetadataImage.empty(), list(snapshot_records(image)), twin.index) == image

    batch_length = data.draw(st.integers(1, 7))
    stepwise = MetadataImage.empty()
    for start in range(0, len(records), batch_length):
        batch = records[start : start + batch_length]
        stepwise = replay(stepwise, batch, start + len(batch))
    assert stepwise == image


@given(st.data())
@settings(max_examples=seeds.examples(40), deadline=None)
def test_the_delta_of_two_images_names_exactly_the_changed_topics_and_configs(data: st.DataObject) -> None:
    twin = Twin(data.draw)
    old = replay(MetadataImage.empty(), [twin.step() for _ in range(30)], twin.index)
    new = replay(old, [twin.step() for _ in range(data.draw(st.integers(0, 10)))], twin.index)
    # A snapshot in between destroys every object identity, but the delta must be the same.
    rebuilt = replay(MetadataImage.empty(), list(snapshot_records(new)), twin.index)
    for after in (new, rebuilt):
        delta = changed_topics(old, after)
        old_ids, new_ids = set(old.topics_by_id), set(after.topics_by_id)
        assert {topic.topic_id for topic in delta.created} == new_ids - old_ids
        assert {topic.topic_id for topic in delta.deleted} == old_ids - new_ids
        assert {before.topic_id for before, _ in delta.changed} == {
            topic_id for topic_id in old_ids & new_ids if old.topics_by_id[topic_id] != after.topics_by_id[topic_id]
        }
        assert changed_configs(old, after) == {
            resource
            for resource in old.configs.keys() | after.configs.keys()
            if old.configs.get(resource) != after.configs.get(resource)
        }


TOPIC_ID = uuid.UUID(int=5).bytes


def _small_cluster() -> MetadataImage:
    return replay(
        MetadataImage.empty(),
        [
            MetadataRecord(cluster=ClusterRecord(cluster_id="c")),
            MetadataRecord(register_broker=RegisterBrokerRecord(broker_id=1, broker_epoch=1, fenced=True)),
            MetadataRecord(register_coordinator=RegisterCoordinatorRecord(coordinator_id=7, coordinator_epoch=2)),
            MetadataRecord(topic=TopicRecord(name="t", topic_id=TOPIC_ID)),
            MetadataRecord(
                partition=PartitionRecord(topic_id=TOPIC_ID, partition=0, replicas=[1, 2], isr=[1], leader=1)
            ),
            MetadataRecord(
                shard_assignment=ShardAssignmentRecord(topic="t", shard=0, coordinator_id=7, writer_epoch=4)
            ),
            MetadataRecord(producer_ids=ProducerIdsRecord(next_producer_id=1000)),
            MetadataRecord(cluster_secret=ClusterSecretRecord(secret=b"s")),
            MetadataRecord(user_scram_credential=UserScramCredentialRecord(name="u", mechanism=1)),
            MetadataRecord(client_quota=ClientQuotaRecord(entity=[QuotaEntityPart(type="user")], key="k", value=1)),
        ],
        8,
    )


def test_the_coordinator_epoch_of_records_without_one_only_grows() -> None:
    """The writer epoch had started at 0 again before the field existed."""
    epochs = []
    image = _small_cluster()
    for producer_id, writer_epoch in ((0, 5), (0, 32_766), (8, 0), (8, 1)):
        record = ShardAssignmentRecord(topic="t", shard=0, producer_id=producer_id, writer_epoch=writer_epoch)
        image = replay(image, [MetadataRecord(shard_assignment=record)], image.end_index + 1)
        epochs.append(image.shards["t", 0].coordinator_epoch)

    assert epochs == [5, 32_766, 32_767, 32_768]


IMPOSSIBLE = {
    "second secret": MetadataRecord(cluster_secret=ClusterSecretRecord(secret=b"s")),
    "credential of no mechanism": MetadataRecord(user_scram_credential=UserScramCredentialRecord(name="u")),
    "removal of an unknown credential": MetadataRecord(
        remove_user_scram_credential=RemoveUserScramCredentialRecord(name="u", mechanism=2)
    ),
    "quota of nobody": MetadataRecord(client_quota=ClientQuotaRecord(key="k", value=1)),
    "removal of an unknown quota": MetadataRecord(
        client_quota=ClientQuotaRecord(entity=[QuotaEntityPart(type="user")], key="j", remove=True)
    ),
    "removal of nobody's quota": MetadataRecord(
        client_quota=ClientQuotaRecord(entity=[QuotaEntityPart(type="user", name="u")], key="k", remove=True)
    ),
    "no kind": MetadataRecord(),
    "second cluster id": MetadataRecord(cluster=ClusterRecord(cluster_id="d")),
    "broker epoch does not grow": MetadataRecord(register_broker=RegisterBrokerRecord(broker_id=1, broker_epoch=1)),
    "change of an unknown broker": MetadataRecord(broker_change=BrokerChangeRecord(broker_id=9)),
    "change of a former broker": MetadataRecord(broker_change=BrokerChangeRecord(broker_id=1, broker_epoch=0)),
    "removal of a former broker": MetadataRecord(unregister_broker=UnregisterBrokerRecord(broker_id=1, broker_epoch=0)),
    "coordinator epoch does not grow": MetadataRecord(
        register_coordinator=RegisterCoordinatorRecord(coordinator_id=7, coordinator_epoch=2)
    ),
    "change of a former coordinator": MetadataRecord(
        coordinator_change=CoordinatorChangeRecord(coordinator_id=7, coordinator_epoch=1)
    ),
    "removal of an unknown coordinator": MetadataRecord(
        unregister_coordinator=UnregisterCoordinatorRecord(coordinator_id=8)
    ),
    "topic name exists": MetadataRecord(topic=TopicRecord(name="t", topic_id=bytes(16))),
    "topic id exists": MetadataRecord(topic=TopicRecord(name="u", topic_id=TOPIC_ID)),
    "unknown topic id": MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=bytes(16))),
    "partition number skips": MetadataRecord(partition=PartitionRecord(topic_id=TOPIC_ID, partition=2, replicas=[1])),
    "no replicas": MetadataRecord(partition=PartitionRecord(topic_id=TOPIC_ID, partition=1, leader=-1)),
    "replica twice": MetadataRecord(
        partition=PartitionRecord(topic_id=TOPIC_ID, partition=1, replicas=[1, 1], leader=-1)
    ),
    "in sync without being a replica": MetadataRecord(
        partition_change=PartitionChangeRecord(topic_id=TOPIC_ID, isr=BrokerIds(broker_ids=[1, 3]))
    ),
    "leader out of sync": MetadataRecord(partition_change=PartitionChangeRecord(topic_id=TOPIC_ID, leader=2)),
    "change of an unknown partition": MetadataRecord(
        partition_change=PartitionChangeRecord(topic_id=TOPIC_ID, partition=1)
    ),
    "writer epoch does not grow": MetadataRecord(
        shard_assignment=ShardAssignmentRecord(topic="t", shard=0, coordinator_id=7, writer_epoch=4)
    ),
    "shard of an unknown topic": MetadataRecord(shard_assignment=ShardAssignmentRecord(topic="u")),
    "shard out of range": MetadataRecord(shard_assignment=ShardAssignmentRecord(topic="t", shard=1)),
    "removal of an unknown ACL": MetadataRecord(
        remove_access_control_entry=RemoveAccessControlEntryRecord(id=bytes(16))
    ),
    "producer ids go back": MetadataRecord(producer_ids=ProducerIdsRecord(next_producer_id=999)),
}


@pytest.mark.parametrize("record", IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_an_impossible_record_is_refused(record: MetadataRecord) -> None:
    image = _small_cluster()
    with pytest.raises(AssertionError):
        replay(image, [record], 8)
    assert image == _small_cluster()


def test_the_end_index_never_goes_back() -> None:
    with pytest.raises(AssertionError, match="from 8 to 6"):
        replay(_small_cluster(), [], 6)


def test_an_image_finds_topics_partitions_and_live_servers() -> None:
    image = _small_cluster()
    assert image.topic("t") is image.topics_by_id[uuid.UUID(bytes=TOPIC_ID)]
    assert image.topic("u") is None
    partition = image.partition("t", 0)
    assert partition is not None
    assert partition.replicas == (1, 2)
    assert image.partition("t", 1) is image.partition("t", -1) is image.partition("u", 0) is None
    assert image.live_brokers() == ()
    assert [coordinator.coordinator_id for coordinator in image.live_coordinators()] == [7]


def test_a_fenced_or_missing_coordinator_owns_no_shard() -> None:
    image = _small_cluster()
    owner = image.shard_owner("t", 0)
    assert owner is not None
    assert owner.coordinator_id == 7
    assert image.shards["t", 0] == ShardImage(coordinator_id=7, producer_id=0, writer_epoch=4, coordinator_epoch=4)
    assert image.shard_owner("t", 1) is None
    for change in (
        MetadataRecord(coordinator_change=CoordinatorChangeRecord(coordinator_id=7, coordinator_epoch=2, fenced=True)),
        MetadataRecord(unregister_coordinator=UnregisterCoordinatorRecord(coordinator_id=7, coordinator_epoch=2)),
    ):
        assert replay(image, [change], 8).shard_owner("t", 0) is None


def test_configs_of_topics_brokers_and_the_default_of_brokers() -> None:
    def config(kind: int, resource: str, value: str) -> MetadataRecord:
        return MetadataRecord(config=ConfigRecord(resource_type=kind, resource_name=resource, name="k", value=value))

    image = replay(
        _small_cluster(),
        [
            config(CONFIG_RESOURCE_TYPE_TOPIC, "t", "1"),
            config(CONFIG_RESOURCE_TYPE_BROKER, "1", "2"),
            config(CONFIG_RESOURCE_TYPE_BROKER, "", "3"),
        ],
        10,
    )
    assert image.topic_configs("t") == {"k": "1"}
    assert image.topic_configs("u") == {}
    assert image.broker_configs(1) == {"k": "2"}
    assert image.broker_configs(None) == {"k": "3"}
    assert image.broker_configs(2) == {}


def test_images_share_unchanged_parts() -> None:
    image = _small_cluster()
    after = replay(image, [MetadataRecord(producer_ids=ProducerIdsRecord(next_producer_id=2000))], 8)
    assert after.topics_by_id is image.topics_by_id
    assert after.configs is image.configs
    assert after.brokers is image.brokers
