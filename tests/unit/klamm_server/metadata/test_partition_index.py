from __future__ import annotations

import random
import uuid
from collections import Counter

from klamm.wire.v1.metadata_pb2 import (
    BrokerIds,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from klamm_server.metadata.entities import NO_LEADER
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.partition_index import Tally
from klamm_server.metadata.replay import replay

BROKERS = range(5)


def expected_tally(image, broker_id):
    partitions = [p for topic in image.topics_by_id.values() for p in topic.partitions]
    return Tally(
        led=sum(p.leader == broker_id for p in partitions),
        in_sync=sum(broker_id in p.isr for p in partitions),
        eligible=sum(broker_id in p.elr for p in partitions),
        offline=sum(broker_id in p.offline_replicas for p in partitions),
        preferred=sum(p.replicas[0] == broker_id for p in partitions),
        away=sum(p.replicas[0] == broker_id != p.leader for p in partitions),
    )


def check(image):
    everything = [(t.topic_id, p) for t in image.topics_by_id.values() for p in t.partitions]
    assert image.index.partition_count == len(everything)
    assert set(image.index.with_eligible) == {(t, p.partition) for t, p in everything if p.elr}
    assert set(image.index.reassigned) == {(t, p.partition) for t, p in everything if p.adding_replicas}
    for broker_id in BROKERS:
        hosted = Counter(image.index.hosted_by(broker_id))
        assert hosted == Counter((t, p.partition) for t, p in everything if broker_id in p.replicas)
        assert image.index.tally(broker_id) == expected_tally(image, broker_id)
    assert image.index.tally(NO_LEADER).led == sum(p.leader == NO_LEADER for _, p in everything)


def some_partition(rng, topic_id, number):
    replicas = rng.sample(BROKERS, 3)
    isr = replicas[: rng.randint(0, 3)]
    leader = rng.choice(isr) if isr and rng.random() < 0.8 else NO_LEADER
    out = [broker_id for broker_id in replicas if broker_id not in isr]
    cut = rng.randint(0, len(out))
    return PartitionRecord(
        topic_id=topic_id,
        partition=number,
        replicas=replicas,
        isr=isr,
        leader=leader,
        elr=out[:cut],
        offline_replicas=out[cut:],
        adding_replicas=replicas[: rng.randint(0, 1)],
    )


def as_change(record):
    change = PartitionChangeRecord(topic_id=record.topic_id, partition=record.partition, leader=record.leader)
    for name in ("replicas", "isr", "elr", "offline_replicas", "adding_replicas"):
        getattr(change, name).CopyFrom(BrokerIds(broker_ids=getattr(record, name)))
    return change


def random_records(rng, image):
    """Returns a batch that adds, grows, changes and removes topics, some of them twice."""
    sizes = {topic_id.bytes: len(topic.partitions) for topic_id, topic in image.topics_by_id.items()}
    for _ in range(rng.randint(1, 8)):
        choice = rng.random()
        if not sizes or choice < 0.3:
            topic_id = uuid.UUID(int=rng.getrandbits(128)).bytes
            sizes[topic_id] = 0
            yield MetadataRecord(topic=TopicRecord(name=topic_id.hex(), topic_id=topic_id))
        topic_id = rng.choice(list(sizes))
        if choice < 0.6:
            for _ in range(rng.randint(1, 3)):
                yield MetadataRecord(partition=some_partition(rng, topic_id, sizes[topic_id]))
                sizes[topic_id] += 1
        elif choice < 0.9 and sizes[topic_id]:
            changed = some_partition(rng, topic_id, rng.randrange(sizes[topic_id]))
            yield MetadataRecord(partition_change=as_change(changed))
        elif choice >= 0.9:
            del sizes[topic_id]
            yield MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=topic_id))


def test_the_partition_index_equals_a_count_of_every_image():
    for seed in range(60):
        rng = random.Random(seed)
        image = MetadataImage.empty()
        for _ in range(10):
            before = image
            records = list(random_records(rng, image))
            image = replay(image, records, image.end_index + len(records))
            check(image)
            check(before)
