from __future__ import annotations

import uuid

import pytest

from klamm.errors import ErrorCode
from klamm.wire.v1.controller_pb2 import (
    AlteredPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrChange,
    IsrMember,
    OfflineReplicas,
    ReportOfflineReplicasRequest,
)
from klamm_controller.metadata.alter_partition import (
    alter_partition_parts,
    handle_alter_partition,
    handle_report_offline_replicas,
    joined_answers,
    offline_replicas_parts,
)
from klamm_controller.metadata.brokers import handle_broker_session_end
from klamm_controller.metadata.sweep import CHANGES_PER_EVENT


@pytest.fixture
def cluster(three_brokers):
    """Returns a cluster with topic "a".

    Partition 0 is on brokers 1, 2 and 3, led by 1, and all are in sync. At least two of them must be.
    """
    three_brokers.create_by_hand("a", (1, 2, 3), min_insync_replicas="2")
    return three_brokers


def isr_change(cluster, *isr, name="a", number=0, epochs=None, **changes):
    partition = cluster.partition(name, number)
    values = {
        "topic_id": cluster.topic(name).topic_id.bytes,
        "partition": number,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "new_isr": [
            IsrMember(broker_id=i, broker_epoch=(epochs or {}).get(i) or cluster.image.brokers[i].broker_epoch)
            for i in isr
        ],
    }
    return IsrChange(**{**values, **changes})


def alter(cluster, *changes, sender=1, **values):
    request = AlterPartitionRequest(
        **{
            "broker_id": sender,
            "broker_epoch": cluster.image.brokers[sender].broker_epoch,
            "partitions": changes,
            **values,
        }
    )
    return cluster.apply(handle_alter_partition(request, cluster.image))


def test_a_shrunk_isr_is_answered_with_the_next_partition_epoch(cluster):
    (answer,) = alter(cluster, isr_change(cluster, 1, 2)).partitions
    partition = cluster.partition("a")
    assert (answer.error_code, list(answer.isr), answer.leader, answer.partition_epoch) == (0, [1, 2], 1, 1)
    assert (partition.isr, partition.elr, partition.leader_epoch, partition.partition_epoch) == ((1, 2), (), 0, 1)


def test_a_replica_leaving_an_isr_below_min_isr_stays_in_the_elr_until_min_isr_is_reached(cluster):
    alter(cluster, isr_change(cluster, 1))
    assert (cluster.partition("a").isr, cluster.partition("a").elr) == ((1,), (2, 3))
    alter(cluster, isr_change(cluster, 1, 3))
    assert (cluster.partition("a").isr, cluster.partition("a").elr) == ((1, 3), ())


def test_a_shrink_by_a_leader_with_a_smaller_min_isr_adds_no_replica_to_the_elr(cluster):
    alter(cluster, isr_change(cluster, 1, min_isr=1))
    assert (cluster.partition("a").isr, cluster.partition("a").elr) == ((1,), ())


def test_an_unchanged_isr_makes_no_record(cluster):
    end_index = cluster.image.end_index
    (answer,) = alter(cluster, isr_change(cluster, 1, 2, 3)).partitions
    assert (answer.error_code, list(answer.isr), answer.partition_epoch) == (0, [1, 2, 3], 0)
    assert cluster.image.end_index == end_index


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic_id": uuid.UUID(int=1).bytes}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"topic_id": b"short"}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"partition": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"partition_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ({"new_isr": []}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_isr_change_of_an_unknown_partition_or_stale_epoch_is_refused(cluster, changes, code):
    (answer,) = alter(cluster, isr_change(cluster, 1, **changes)).partitions
    assert ErrorCode.of(answer.error_code) is code
    assert cluster.partition("a").partition_epoch == 0


@pytest.mark.parametrize("isr", [(2, 3), (1, 1, 2), (1, 4)])
def test_an_invalid_isr_is_refused(cluster, isr):
    cluster.add_broker(4)
    (answer,) = alter(cluster, isr_change(cluster, *isr)).partitions
    assert ErrorCode.of(answer.error_code) is ErrorCode.INVALID_REQUEST
    assert cluster.partition("a").partition_epoch == 0


def test_only_the_leader_may_change_the_isr(cluster):
    (answer,) = alter(cluster, isr_change(cluster, 1, 2), sender=2).partitions
    assert ErrorCode.of(answer.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_request_with_a_stale_broker_epoch_is_refused_as_a_whole(cluster):
    reply = alter(cluster, isr_change(cluster, 1, 2), broker_epoch=99)
    assert ErrorCode.of(reply.error_code) is ErrorCode.STALE_BROKER_EPOCH
    assert not reply.partitions


def drop(cluster, broker_id):
    alter(cluster, isr_change(cluster, *(i for i in cluster.partition("a").isr if i != broker_id)))


def test_a_fenced_broker_may_not_join_the_isr(cluster):
    cluster.apply(handle_broker_session_end(3, cluster.image))
    (answer,) = alter(cluster, isr_change(cluster, 1, 2, 3)).partitions
    assert ErrorCode.of(answer.error_code) is ErrorCode.INELIGIBLE_REPLICA
    assert "fenced" in answer.error_message


def test_a_broker_that_shuts_down_may_not_join_the_isr(cluster):
    cluster.beat(3, want_shutdown=True)
    (answer,) = alter(cluster, isr_change(cluster, 1, 2, 3)).partitions
    assert ErrorCode.of(answer.error_code) is ErrorCode.INELIGIBLE_REPLICA
    assert "shutting down" in answer.error_message


def test_a_broker_with_an_earlier_epoch_may_not_join_the_isr(cluster):
    drop(cluster, 3)
    earlier = cluster.image.brokers[3].broker_epoch
    cluster.add_broker(3, life=1)
    (answer,) = alter(cluster, isr_change(cluster, 1, 2, 3, epochs={3: earlier})).partitions
    assert ErrorCode.of(answer.error_code) is ErrorCode.INELIGIBLE_REPLICA
    (answer,) = alter(cluster, isr_change(cluster, 1, 2, 3)).partitions
    assert answer.error_code == 0


def test_each_isr_change_of_a_batch_has_its_own_result(cluster):
    cluster.create_by_hand("b", (1, 2), (2, 1), (1, 3))
    (one, other_leader, two, again) = alter(
        cluster,
        isr_change(cluster, 1, name="b", number=0),
        isr_change(cluster, 1, name="b", number=1),
        isr_change(cluster, 1, name="b", number=2),
        isr_change(cluster, 1, 3, name="b", number=2),
    ).partitions
    assert [one.error_code, two.error_code] == [0, 0]
    assert ErrorCode.of(other_leader.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ErrorCode.of(again.error_code) is ErrorCode.INVALID_REQUEST
    assert [p.isr for p in cluster.topic("b").partitions] == [(1,), (2, 1), (1,)]


def report(cluster, broker_id, *numbers, name="a"):
    request = ReportOfflineReplicasRequest(
        broker_id=broker_id,
        broker_epoch=cluster.image.brokers[broker_id].broker_epoch,
        topics=[OfflineReplicas(topic_id=cluster.topic(name).topic_id.bytes, partitions=numbers)],
    )
    return cluster.apply(handle_report_offline_replicas(request, cluster.image))


def test_an_offline_replica_cannot_lead_or_join_the_isr_until_its_broker_registers_again(cluster):
    assert not report(cluster, 1, 0).error_code
    partition = cluster.partition("a")
    assert (partition.leader, partition.isr, partition.offline_replicas) == (2, (2, 3), (1,))
    (answer,) = alter(cluster, isr_change(cluster, 2, 3, 1), sender=2).partitions
    assert ErrorCode.of(answer.error_code) is ErrorCode.INELIGIBLE_REPLICA

    end_index = cluster.image.end_index
    report(cluster, 1, 0, 7)
    assert cluster.image.end_index == end_index, "nothing is reported twice, and nothing that there is not"

    cluster.add_broker(1, life=1)
    assert cluster.partition("a").offline_replicas == ()
    (answer,) = alter(cluster, isr_change(cluster, 2, 3, 1), sender=2).partitions
    assert answer.error_code == 0


def test_an_offline_replica_leaves_the_elr(cluster):
    alter(cluster, isr_change(cluster, 1))
    report(cluster, 2, 0)
    assert (cluster.partition("a").isr, cluster.partition("a").elr) == ((1,), (3,))


def test_an_offline_report_with_a_stale_broker_epoch_is_refused(cluster):
    request = ReportOfflineReplicasRequest(broker_id=1, broker_epoch=99)
    reply = handle_report_offline_replicas(request, cluster.image).reply
    assert ErrorCode.of(reply.error_code) is ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize("count", [0, 1, CHANGES_PER_EVENT, CHANGES_PER_EVENT + 1, 3 * CHANGES_PER_EVENT])
def test_the_parts_of_an_alter_partition_request_have_the_same_changes_in_order(count):
    changes = [IsrChange(topic_id=bytes(16), partition=number) for number in range(count)]
    parts = alter_partition_parts(AlterPartitionRequest(broker_id=3, broker_epoch=7, partitions=changes))
    assert [change for part in parts for change in part.partitions] == changes
    assert {(part.broker_id, part.broker_epoch) for part in parts} == {(3, 7)}
    assert all(len(part.partitions) <= CHANGES_PER_EVENT for part in parts)


def test_the_answers_of_the_parts_are_joined_in_order_unless_the_broker_epoch_is_stale():
    parts = [AlterPartitionResponse(partitions=[AlteredPartition(partition=number)]) for number in (0, 1)]
    assert [answer.partition for answer in joined_answers(parts).partitions] == [0, 1]
    stale = AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    assert joined_answers([parts[0], stale]) is stale


@pytest.mark.parametrize("sizes", [[], [0], [1, 2], [CHANGES_PER_EVENT, 1], [250, 30, 70, 1], [30] * 10])
def test_the_parts_of_an_offline_report_name_the_same_replicas_in_order(sizes):
    topics = [OfflineReplicas(topic_id=bytes([n]) * 16, partitions=range(size)) for n, size in enumerate(sizes)]
    parts = offline_replicas_parts(ReportOfflineReplicasRequest(broker_id=3, broker_epoch=7, topics=topics))

    def replicas(*requests):
        return [
            (topic.topic_id, number) for request in requests for topic in request.topics for number in topic.partitions
        ]

    assert replicas(*parts) == replicas(ReportOfflineReplicasRequest(topics=topics))
    assert {(part.broker_id, part.broker_epoch) for part in parts} == {(3, 7)}
    assert all(len(replicas(part)) <= CHANGES_PER_EVENT for part in parts)
