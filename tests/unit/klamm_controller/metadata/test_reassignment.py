from __future__ import annotations

import pytest

from klamm.errors import ErrorCode
from klamm.wire.v1.controller_pb2 import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    NamedPartition,
    PartitionReassignment,
)
from klamm.wire.v1.metadata_pb2 import BrokerIds, MetadataRecord, PartitionChangeRecord
from klamm_controller.metadata.brokers import handle_broker_session_end
from klamm_controller.metadata.reassignment import (
    handle_alter_partition_reassignments,
    list_partition_reassignments,
    reassignment_parts,
)
from klamm_controller.metadata.sweep import CHANGES_PER_EVENT, Sweep, all_partitions


@pytest.fixture
def cluster(three_brokers):
    """Returns a cluster of brokers 1 to 6. Topic "a" is on 1, 2 and 3, all in sync; two of them must be."""
    for broker_id in (4, 5, 6):
        three_brokers.add_broker(broker_id)
    three_brokers.create_by_hand("a", (1, 2, 3), min_insync_replicas="2")
    return three_brokers


def wanted(replicas, topic="a", number=0):
    ids = None if replicas is None else BrokerIds(broker_ids=replicas)
    return PartitionReassignment(topic=topic, partition=number, replicas=ids)


def reassign(cluster, *changes, **options):
    request = AlterPartitionReassignmentsRequest(partitions=changes, **options)
    reply = cluster.apply(handle_alter_partition_reassignments(request, cluster.image))
    return [ErrorCode.of(result.error_code) for result in reply.results]


def state(cluster):
    p = cluster.partition("a")
    return {"replicas": p.replicas, "adding": p.adding_replicas, "removing": p.removing_replicas}


def test_old_replicas_are_removed_when_all_new_replicas_are_in_sync(cluster):
    assert reassign(cluster, wanted([4, 5, 6])) == [ErrorCode.NONE]
    assert state(cluster) == {"replicas": (4, 5, 6, 1, 2, 3), "adding": (4, 5, 6), "removing": (1, 2, 3)}
    assert (cluster.partition("a").leader, cluster.partition("a").leader_epoch) == (1, 0)

    for broker_id in (4, 5):
        cluster.bring_into_sync(broker_id)
        assert state(cluster)["removing"] == (1, 2, 3)
    cluster.bring_into_sync(6)
    partition = cluster.partition("a")
    assert state(cluster) == {"replicas": (4, 5, 6), "adding": (), "removing": ()}
    assert (partition.leader, partition.leader_epoch, set(partition.isr), partition.elr) == (4, 1, {4, 5, 6}, ())


def test_a_leader_that_completes_a_reassignment_and_stays_gets_a_new_leader_epoch(cluster):
    reassign(cluster, wanted([1, 2, 4]))
    answer = cluster.bring_into_sync(4)
    partition = cluster.partition("a")
    assert (partition.replicas, partition.leader, partition.leader_epoch) == ((1, 2, 4), 1, 1)
    assert (answer.leader, answer.leader_epoch, answer.partition_epoch) == (1, 1, partition.partition_epoch)


def test_a_leader_that_the_reassignment_removes_gets_new_leader_elected(cluster):
    reassign(cluster, wanted([2, 3]))
    assert state(cluster) == {"replicas": (2, 3), "adding": (), "removing": ()}, "they are in sync already"
    reassign(cluster, wanted([3, 4]))
    answer = cluster.bring_into_sync(4)
    assert ErrorCode.of(answer.error_code) is ErrorCode.NEW_LEADER_ELECTED
    assert (cluster.partition("a").leader, cluster.partition("a").replicas) == (3, (3, 4))


@pytest.mark.parametrize("target", [(1, 2, 4), (4, 2), (1, 2, 3, 4), (3, 2, 5, 4)])
def test_a_dead_replica_that_stays_does_not_block_a_reassignment_to_as_many_replicas(cluster, target):
    """Before, such a reassignment waited for the dead broker (KAFKA-19975)."""
    if len(target) == 2:
        reassign(cluster, wanted([1, 2]))
    cluster.apply(handle_broker_session_end(2, cluster.image))
    reassign(cluster, wanted(target))
    for broker_id in set(target) & {4, 5}:
        assert state(cluster)["adding"] != ()
        cluster.bring_into_sync(broker_id)
    partition = cluster.partition("a")
    assert state(cluster) == {"replicas": target, "adding": (), "removing": ()}
    assert set(partition.isr) == set(target) - {2}
    assert partition.leader in partition.isr


def test_a_reassignment_to_fewer_replicas_waits_until_all_that_stay_are_in_sync(cluster):
    cluster.apply(handle_broker_session_end(2, cluster.image))
    reassign(cluster, wanted([2, 4]))
    cluster.bring_into_sync(4)
    assert state(cluster)["removing"] == (1, 3), "the in-sync set would shrink to broker 4"
    cluster.add_broker(2)
    cluster.bring_into_sync(2)
    assert state(cluster) == {"replicas": (2, 4), "adding": (), "removing": ()}


def test_a_reassignment_waits_for_an_added_replica_that_is_dead(cluster):
    reassign(cluster, wanted([1, 4, 5]))
    cluster.apply(handle_broker_session_end(5, cluster.image))
    cluster.bring_into_sync(4)
    assert state(cluster) == {"replicas": (1, 4, 5, 2, 3), "adding": (4, 5), "removing": (2, 3)}


def test_a_new_controller_ends_a_reassignment_that_an_older_version_left_blocked(cluster):
    cluster.apply(handle_broker_session_end(2, cluster.image))
    blocked = PartitionChangeRecord(
        topic_id=cluster.topic("a").topic_id.bytes,
        partition=0,
        replicas=BrokerIds(broker_ids=[1, 2, 4, 3]),
        isr=BrokerIds(broker_ids=[1, 3, 4]),
        adding_replicas=BrokerIds(broker_ids=[4]),
        removing_replicas=BrokerIds(broker_ids=[3]),
    )
    cluster.replay([MetadataRecord(partition_change=blocked)])
    cluster.replay(Sweep("claim", all_partitions(cluster.image)).next_changes(cluster.image))
    assert state(cluster) == {"replicas": (1, 2, 4), "adding": (), "removing": ()}
    assert set(cluster.partition("a").isr) == {1, 4}


def test_a_new_replica_order_is_applied_without_a_reassignment(cluster):
    reassign(cluster, wanted([3, 2, 1]))
    assert state(cluster) == {"replicas": (3, 2, 1), "adding": (), "removing": ()}
    assert (cluster.partition("a").leader, cluster.partition("a").leader_epoch) == (1, 0)


def test_a_reassignment_changes_the_replication_factor_unless_it_is_kept(cluster):
    refused = [ErrorCode.INVALID_REPLICATION_FACTOR]
    assert reassign(cluster, wanted([1, 2, 3, 4]), keep_replication_factor=True) == refused
    assert reassign(cluster, wanted([1, 2, 3, 4])) == [ErrorCode.NONE]
    assert state(cluster)["adding"] == (4,)
    assert reassign(cluster, wanted([1])) == [ErrorCode.NONE]
    assert state(cluster) == {"replicas": (1,), "adding": (), "removing": ()}
    assert cluster.partition("a").isr == (1,)


def test_a_reassignment_to_the_current_replicas_makes_no_record(cluster):
    end_index = cluster.image.end_index
    assert reassign(cluster, wanted([1, 2, 3])) == [ErrorCode.NONE]
    assert cluster.image.end_index == end_index


def test_a_cancelled_reassignment_restores_the_replicas(cluster):
    reassign(cluster, wanted([4, 5, 6]))
    cluster.bring_into_sync(4)
    assert reassign(cluster, wanted(None)) == [ErrorCode.NONE]
    partition = cluster.partition("a")
    assert state(cluster) == {"replicas": (1, 2, 3), "adding": (), "removing": ()}
    assert (set(partition.isr), partition.leader, partition.leader_epoch) == ({1, 2, 3}, 1, 1)
    assert reassign(cluster, wanted(None)) == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]


def test_a_reassignment_cannot_be_cancelled_if_only_new_replicas_are_in_sync(cluster):
    cluster.create_by_hand("b", (1,))
    reassign(cluster, wanted([4, 5], "b"))
    cluster.bring_into_sync(4, "b")
    cluster.register_broker(1, life=1)
    assert cluster.partition("b").isr == (4,)
    assert reassign(cluster, wanted(None, "b")) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert cluster.partition("b").replicas == (4, 5, 1)


def test_a_second_reassignment_drops_the_replicas_that_the_first_one_added(cluster):
    reassign(cluster, wanted([4, 5, 6]))
    cluster.bring_into_sync(4)
    reassign(cluster, wanted([1, 2, 5]))
    assert state(cluster) == {"replicas": (1, 2, 5, 4, 3), "adding": (5,), "removing": (4, 3)}
    cluster.bring_into_sync(5)
    assert state(cluster) == {"replicas": (1, 2, 5), "adding": (), "removing": ()}


def test_the_last_known_leader_stays_a_replica_until_others_are_in_sync(cluster):
    cluster.create_by_hand("b", (1,))
    reassign(cluster, wanted([4, 5], "b"))
    cluster.bring_into_sync(4, "b")
    cluster.register_broker(1, life=1)
    cluster.register_broker(4, life=1)
    partition = cluster.partition("b")
    assert (partition.isr, partition.elr, partition.last_known_elr) == ((), (), (4,))
    assert reassign(cluster, wanted(None, "b")) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert reassign(cluster, wanted([5, 6], "b")) == [ErrorCode.NONE]
    assert cluster.partition("b").replicas == (5, 6, 4, 1)
    for broker_id in (1, 4, 5, 6):
        cluster.beat(broker_id)
        cluster.report_log(broker_id, 1, 10 if broker_id == 4 else 0, "b")
    assert cluster.partition("b").leader == 4
    cluster.bring_into_sync(5, "b")
    cluster.bring_into_sync(6, "b")
    partition = cluster.partition("b")
    assert (partition.replicas, set(partition.isr), partition.last_known_elr) == ((5, 6), {5, 6}, ())


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (wanted([]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted([1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted([1, 9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted([1], number=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (wanted([1], "nope"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_refused_reassignment_does_not_affect_the_others(cluster, change, code):
    cluster.create_by_hand("b", (1,))
    assert reassign(cluster, change, wanted([2, 1], "b")) == [code, ErrorCode.NONE]
    assert cluster.partition("a").partition_epoch == 0
    assert cluster.partition("b").adding_replicas == (2,)


def test_a_partition_that_is_named_twice_is_not_reassigned(cluster):
    assert reassign(cluster, wanted([4]), wanted([5])) == [ErrorCode.INVALID_REQUEST] * 2


def test_a_big_reassignment_request_is_split_into_parts():
    changes = [wanted([1], number=number) for number in range(CHANGES_PER_EVENT + 1)]
    request = AlterPartitionReassignmentsRequest(partitions=changes, keep_replication_factor=True)
    parts = reassignment_parts(request)
    assert [len(part.partitions) for part in parts] == [CHANGES_PER_EVENT, 1]
    assert [partition for part in parts for partition in part.partitions] == changes
    assert all(part.keep_replication_factor for part in parts)


def test_reassignments_in_progress_are_listed(cluster):
    cluster.create_by_hand("b", (1,), (2,))
    reassign(cluster, wanted([4, 5, 6]), wanted([3], "b", 1))
    everything = list_partition_reassignments(ListPartitionReassignmentsRequest(), cluster.image).reassignments
    assert [(each.topic, each.partition) for each in everything] == [("a", 0), ("b", 1)]
    assert (list(everything[1].replicas), list(everything[1].adding_replicas)) == ([3, 2], [3])
    request = ListPartitionReassignmentsRequest(
        partitions=[NamedPartition(topic="b", partition=0), NamedPartition(topic="a", partition=0)]
    )
    (one,) = list_partition_reassignments(request, cluster.image).reassignments
    assert (one.topic, list(one.removing_replicas), list(one.isr)) == ("a", [1, 2, 3], [1, 2, 3])


def test_a_reassignment_outlives_the_loss_of_its_leader(cluster):
    reassign(cluster, wanted([4, 5]))
    cluster.bring_into_sync(4)
    cluster.apply(handle_broker_session_end(1, cluster.image))
    assert (cluster.partition("a").leader, state(cluster)["adding"]) == (4, (4, 5))
    cluster.bring_into_sync(5)
    assert (state(cluster)["replicas"], cluster.partition("a").leader) == ((4, 5), 4)
