from __future__ import annotations

import uuid

import pytest

from klamm.wire.v1.metadata_pb2 import MetadataRecord, PartitionRecord, TopicRecord
from klamm_broker.replica.resignations import Resignations
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay

TOPIC = uuid.UUID(int=7)
BROKER, EPOCH = 1, 40


def key(number):
    return TOPIC.bytes, number


def image(*partitions):
    """Returns an image. Each partition is (leader, resigned replicas) and has the replicas 1, 2 and 3."""
    records = [MetadataRecord(topic=TopicRecord(name="t", topic_id=TOPIC.bytes))]
    for number, (leader, resigned) in enumerate(partitions):
        record = MetadataRecord()
        record.partition.CopyFrom(
            PartitionRecord(
                topic_id=TOPIC.bytes,
                partition=number,
                replicas=[1, 2, 3],
                isr=[1, 2, 3],
                leader=leader,
                resigned_replicas=resigned,
            )
        )
        records.append(record)
    return replay(MetadataImage.empty(), records, len(records))


def named(replicas):
    return [(topic.topic_id, number) for topic in replicas for number in topic.partitions]


@pytest.fixture
def resignations():
    return Resignations(BROKER)


def test_a_resignation_is_sent_until_the_metadata_contain_it(resignations):
    assert resignations.resign(key(0), "full")
    request = resignations.next_request(image((1, [])), broker_epoch=EPOCH)
    assert (request.broker_id, request.broker_epoch) == (BROKER, EPOCH)
    assert (named(request.resigned), named(request.resumed)) == ([key(0)], [])
    resignations.on_answer(request)
    assert resignations.next_request(image((1, [2])), broker_epoch=EPOCH) == request, "another one's changes nothing"
    assert resignations.next_request(image((2, [1])), broker_epoch=EPOCH) is None
    assert resignations.next_request(image((2, [])), broker_epoch=EPOCH) == request, "after another registration"


def test_replicas_that_lead_resign_first(resignations):
    for number in range(3):
        resignations.resign(key(number), "full")
    request = resignations.next_request(image((2, []), (2, []), (1, [])), broker_epoch=EPOCH)
    assert named(request.resigned) == [key(2), key(0), key(1)]


def test_a_replica_resumes_after_its_last_reason_ends_and_sends_it_until_answered(resignations):
    assert resignations.resign(key(0), "full")
    assert not resignations.resign(key(0), "damaged")
    resignations.resume(key(0), "full")
    assert key(0) in resignations
    assert resignations.next_request(image((2, [1])), broker_epoch=EPOCH) is None
    resignations.resume(key(0), "damaged")
    request = resignations.next_request(image((2, [1])), broker_epoch=EPOCH)
    assert (named(request.resigned), named(request.resumed)) == ([], [key(0)])
    assert resignations.next_request(image((2, [1])), broker_epoch=EPOCH) == request, "it was not answered"
    resignations.on_answer(request)
    assert resignations.next_request(image((2, [1])), broker_epoch=EPOCH) is None


def test_a_replica_that_resigns_again_before_its_resumption_is_sent_does_not_resume(resignations):
    resignations.resign(key(0), "full")
    resignations.resume(key(0), "full")
    resignations.resign(key(0), "full")
    request = resignations.next_request(image((2, [])), broker_epoch=EPOCH)
    assert (named(request.resigned), named(request.resumed)) == ([key(0)], [])


def test_a_replica_that_a_late_request_resigned_sends_its_resumption_again(resignations):
    late = image((2, [1]))
    partition = late.topics_by_id[TOPIC].partitions[0]
    assert resignations.note(key(0), partition)
    assert named(resignations.next_request(late, broker_epoch=EPOCH).resumed) == [key(0)]
    resignations.resign(key(0), "full")
    assert not resignations.note(key(0), partition)
    assert not Resignations(2).note(key(0), partition), "of another broker's it knows nothing"


def test_a_replica_that_never_resigned_sends_no_resumption(resignations):
    resignations.resume(key(0), "full")
    assert resignations.next_request(image((1, [])), broker_epoch=EPOCH) is None
    assert len(resignations) == 0


def test_the_resignation_of_a_deleted_partition_is_not_sent(resignations):
    resignations.resign(key(5), "full")
    resignations.resign((uuid.UUID(int=8).bytes, 0), "full")
    assert resignations.next_request(image((1, [])), broker_epoch=EPOCH) is None
    assert resignations.resigned_for("full") == [key(5), (uuid.UUID(int=8).bytes, 0)]
