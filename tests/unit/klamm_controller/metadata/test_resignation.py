from __future__ import annotations

import pytest

from klamm.errors import ErrorCode
from klamm.wire.v1.controller_pb2 import (
    AlterPartitionRequest,
    IsrChange,
    IsrMember,
    ResignedReplicas,
    ResignReplicasRequest,
)
from klamm_controller.metadata.alter_partition import handle_alter_partition
from klamm_controller.metadata.brokers import handle_broker_session_end
from klamm_controller.metadata.resignation import handle_resign_replicas, resign_replicas_parts
from klamm_controller.metadata.sweep import CHANGES_PER_EVENT


@pytest.fixture
def cluster(three_brokers):
    """Returns a cluster with topic "a".

    Partition 0 is on brokers 1, 2 and 3, led by 1, and all are in sync. At least two of them must be.
    """
    three_brokers.create_by_hand("a", (1, 2, 3), min_insync_replicas="2")
    return three_brokers


def replicas(cluster, *numbers, name="a"):
    return [ResignedReplicas(topic_id=cluster.topic(name).topic_id.bytes, partitions=numbers)]


def ask(cluster, broker_id, **named):
    epoch = cluster.image.brokers[broker_id].broker_epoch
    request = ResignReplicasRequest(broker_id=broker_id, broker_epoch=epoch, **named)
    return cluster.apply(handle_resign_replicas(request, cluster.image))


def resign(cluster, broker_id, name="a"):
    return ask(cluster, broker_id, resigned=replicas(cluster, 0, name=name))


def resume(cluster, broker_id):
    return ask(cluster, broker_id, resumed=replicas(cluster, 0))


def alter(cluster, *isr, name="a"):
    partition = cluster.partition(name)
    epochs = {broker_id: cluster.image.brokers[broker_id].broker_epoch for broker_id in isr}
    change = IsrChange(
        topic_id=cluster.topic(name).topic_id.bytes,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr=[IsrMember(broker_id=broker_id, broker_epoch=epoch) for broker_id, epoch in epochs.items()],
    )
    request = AlterPartitionRequest(
        broker_id=partition.leader, broker_epoch=epochs[partition.leader], partitions=[change]
    )
    (answer,) = cluster.apply(handle_alter_partition(request, cluster.image)).partitions
    return ErrorCode.of(answer.error_code)


def test_a_leader_that_resigns_leaves_the_isr_and_another_replica_leads(cluster):
    assert resign(cluster, 1).error_code == 0
    partition = cluster.partition("a")
    assert (partition.leader, partition.leader_epoch) == (2, 1)
    assert (partition.isr, partition.elr, partition.resigned_replicas) == ((2, 3), (), (1,))


def test_a_follower_that_resigns_leaves_the_isr_and_cannot_join_until_it_resumes(cluster):
    resign(cluster, 3)
    partition = cluster.partition("a")
    assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 0, (1, 2))
    assert alter(cluster, 1, 2, 3) is ErrorCode.INELIGIBLE_REPLICA
    resume(cluster, 3)
    assert cluster.partition("a").isr == (1, 2), "it joins when its leader finds that it has everything"
    assert alter(cluster, 1, 2, 3) is ErrorCode.NONE
    assert cluster.partition("a").isr == (1, 2, 3)


def test_a_replica_that_resigns_below_min_isr_stays_in_the_elr(cluster):
    alter(cluster, 1, 2)
    resign(cluster, 1)
    partition = cluster.partition("a")
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), (1,))
    cluster.apply(handle_broker_session_end(2, cluster.image))
    assert cluster.partition("a").leader == 1, "rather one that refuses to append than nobody"


def test_an_elr_member_that_has_not_resigned_is_elected_first(cluster):
    cluster.create_by_hand("b", (1, 2, 3), min_insync_replicas="3")
    resign(cluster, 2, name="b")
    alter(cluster, 1, name="b")
    assert cluster.partition("b").elr == (2, 3)
    cluster.apply(handle_broker_session_end(1, cluster.image))
    assert cluster.partition("b").leader == 3


def test_the_last_resigned_replica_stays_leader_until_another_one_can_lead(cluster):
    for broker_id in (1, 2, 3):
        resign(cluster, broker_id)
    partition = cluster.partition("a")
    assert (partition.leader, partition.isr, partition.elr) == (3, (3,), (2,))
    assert alter(cluster, 3, 2) is ErrorCode.INELIGIBLE_REPLICA
    resume(cluster, 2)
    assert alter(cluster, 3, 2) is ErrorCode.NEW_LEADER_ELECTED
    partition = cluster.partition("a")
    assert (partition.leader, partition.isr, partition.resigned_replicas) == (2, (2,), (1, 3))


def test_a_new_registration_of_a_broker_ends_its_resignations(cluster):
    resign(cluster, 3)
    cluster.add_broker(3, life=1)
    assert cluster.partition("a").resigned_replicas == ()


def test_a_repeated_resignation_or_one_of_an_unknown_partition_makes_no_record(cluster):
    resign(cluster, 3)
    end_index = cluster.image.end_index
    resign(cluster, 3)
    resume(cluster, 2)
    ask(cluster, 3, resigned=replicas(cluster, 7), resumed=[ResignedReplicas(topic_id=b"short", partitions=[0])])
    assert cluster.image.end_index == end_index


def test_a_resignation_with_a_stale_broker_epoch_is_refused(cluster):
    reply = handle_resign_replicas(ResignReplicasRequest(broker_id=1, broker_epoch=99), cluster.image).reply
    assert ErrorCode.of(reply.error_code) is ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize("sizes", [[], [0], [1, 2], [CHANGES_PER_EVENT, 1], [250, 30, 70, 1], [30] * 10])
def test_the_parts_of_a_resignation_request_name_the_same_replicas_in_order(sizes):
    named = [ResignedReplicas(topic_id=bytes([n]) * 16, partitions=range(size)) for n, size in enumerate(sizes)]
    request = ResignReplicasRequest(broker_id=3, broker_epoch=7, resigned=named, resumed=named[::-1])
    parts = resign_replicas_parts(request)

    def flat(topics):
        return [(topic.topic_id, number) for topic in topics for number in topic.partitions]

    assert [one for part in parts for one in flat(part.resigned)] == flat(request.resigned)
    assert [one for part in parts for one in flat(part.resumed)] == flat(request.resumed)
    assert {(part.broker_id, part.broker_epoch) for part in parts} == {(3, 7)}
    assert all(len(flat(part.resigned)) + len(flat(part.resumed)) <= CHANGES_PER_EVENT for part in parts)
