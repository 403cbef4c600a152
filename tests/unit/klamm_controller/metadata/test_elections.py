from __future__ import annotations

import pytest

from klamm.errors import ErrorCode
from klamm.wire.v1.controller_pb2 import (
    CONFIG_OPERATION_DELETE,
    CONFIG_OPERATION_SET,
    ELECTION_TYPE_PREFERRED,
    ELECTION_TYPE_UNCLEAN,
    AlterConfigsResource,
    AlterPartitionReassignmentsRequest,
    ConfigChange,
    ConfigResource,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    NamedPartition,
    PartitionReassignment,
    UnregisterBrokerRequest,
)
from klamm.wire.v1.metadata_pb2 import CONFIG_RESOURCE_TYPE_BROKER, CONFIG_RESOURCE_TYPE_TOPIC, BrokerIds
from klamm_controller.metadata.brokers import handle_broker_session_end, handle_unregister_broker
from klamm_controller.metadata.configs import handle_incremental_alter_configs
from klamm_controller.metadata.elections import LeaderElections, leaders_home, unbalanced_brokers
from klamm_controller.metadata.reassignment import handle_alter_partition_reassignments
from klamm_controller.metadata.sweep import CHANGES_PER_EVENT
from klamm_server.metadata.entities import NO_LEADER


def elect(cluster, kind, *partitions):
    """Elects leaders. Returns {(topic, number): ErrorCode}."""
    request = ElectLeadersRequest(
        election_type=kind, partitions=[NamedPartition(topic=topic, partition=number) for topic, number in partitions]
    )
    results = {}
    for part in LeaderElections(request, cluster.logs).parts():
        reply = cluster.apply(part(cluster.image))
        results.update({(result.topic, result.partition): ErrorCode.of(result.error_code) for result in reply.results})
    return results


def end_session(cluster, broker_id):
    cluster.apply(handle_broker_session_end(broker_id, cluster.image))


def move_away(cluster, broker_id):
    """Ends the broker's session and brings it back into sync, so that it no longer leads any partition."""
    end_session(cluster, broker_id)
    cluster.beat(broker_id)
    cluster.bring_into_sync(broker_id)


def test_the_preferred_leader_leads_again_with_a_new_epoch(three_brokers):
    three_brokers.create_by_hand("a", (1, 2), (2, 1))
    move_away(three_brokers, 1)
    assert [p.leader for p in three_brokers.topic("a").partitions] == [2, 2]
    assert elect(three_brokers, ELECTION_TYPE_PREFERRED) == {("a", 0): ErrorCode.NONE}
    partition = three_brokers.partition("a")
    assert (partition.leader, partition.leader_epoch, set(partition.isr)) == (1, 2, {1, 2})


@pytest.mark.parametrize(
    ("kind", "asked", "code"),
    [
        (ELECTION_TYPE_PREFERRED, ("a", 1), ErrorCode.ELECTION_NOT_NEEDED),
        (ELECTION_TYPE_UNCLEAN, ("a", 0), ErrorCode.ELECTION_NOT_NEEDED),
        (ELECTION_TYPE_PREFERRED, ("a", 0), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (ELECTION_TYPE_PREFERRED, ("a", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ELECTION_TYPE_PREFERRED, ("b", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_refused_election_changes_nothing(three_brokers, kind, asked, code):
    three_brokers.create_by_hand("a", (1, 2), (2, 3))
    end_session(three_brokers, 1)
    end_index = three_brokers.image.end_index
    assert elect(three_brokers, kind, asked) == {asked: code}
    assert three_brokers.image.end_index == end_index


def test_an_unclean_election_elects_an_active_replica_and_is_reported(three_brokers):
    three_brokers.create_by_hand("a", (1, 2))
    end_session(three_brokers, 2)
    end_session(three_brokers, 1)
    three_brokers.beat(2)
    assert three_brokers.partition("a").leader == NO_LEADER
    assert elect(three_brokers, ELECTION_TYPE_UNCLEAN, ("a", 0)) == {("a", 0): ErrorCode.NONE}
    assert three_brokers.unclean == [("a", 0, 2)]
    partition = three_brokers.partition("a")
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (2, (2,), (), ())


def test_an_unclean_election_elects_the_replica_with_the_most_complete_reported_log(three_brokers):
    three_brokers.create_by_hand("a", (1, 2, 3), unclean_recovery_strategy="None")
    for broker_id in (3, 2, 1):
        end_session(three_brokers, broker_id)
    for broker_id, end_offset in ((2, 5), (3, 7)):
        three_brokers.beat(broker_id)
        assert three_brokers.report_log(broker_id, 0, end_offset) == NO_LEADER
    assert elect(three_brokers, ELECTION_TYPE_UNCLEAN, ("a", 0)) == {("a", 0): ErrorCode.NONE}
    assert three_brokers.unclean == [("a", 0, 3)]


def test_an_unclean_election_without_an_active_replica_is_refused(three_brokers):
    three_brokers.create_by_hand("a", (1,))
    end_session(three_brokers, 1)
    assert elect(three_brokers, ELECTION_TYPE_UNCLEAN) == {("a", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_a_clean_election_is_not_reported(three_brokers):
    three_brokers.create_by_hand("a", (1, 2))
    end_session(three_brokers, 1)
    assert (three_brokers.partition("a").leader, three_brokers.unclean) == (2, [])


def test_an_election_from_the_elr_is_not_reported_as_unclean(three_brokers):
    three_brokers.create_by_hand("a", (1, 2), min_insync_replicas="2")
    end_session(three_brokers, 2)
    three_brokers.beat(2)
    assert three_brokers.partition("a").elr == (2,)
    end_session(three_brokers, 1)
    assert (three_brokers.partition("a").leader, three_brokers.unclean) == (2, [])


def test_a_leader_added_to_the_isr_by_a_reassignment_is_not_reported_as_unclean(three_brokers):
    three_brokers.create_by_hand("a", (1,))
    request = AlterPartitionReassignmentsRequest(
        partitions=[PartitionReassignment(topic="a", replicas=BrokerIds(broker_ids=[2]))]
    )
    three_brokers.apply(handle_alter_partition_reassignments(request, three_brokers.image))
    three_brokers.bring_into_sync(2)
    partition = three_brokers.partition("a")
    assert (partition.leader, partition.replicas) == (2, (2,)), "in sync, it completes the reassignment and leads"
    assert three_brokers.unclean == []


def test_many_elections_take_several_events(three_brokers):
    three_brokers.create_by_hand("a", *[(1, 2)] * 100)
    three_brokers.create_by_hand("b", *[(1, 2)] * 50)
    move_away(three_brokers, 1)
    elections = LeaderElections(ElectLeadersRequest(), three_brokers.logs)
    counts = []
    for part in elections.parts():
        decision = part(three_brokers.image)
        three_brokers.apply(decision)
        counts.append(len(decision.records))
    assert counts == [CHANGES_PER_EVENT, 150 - CHANGES_PER_EVENT]
    assert three_brokers.image.index.tally(1).away == 0


def test_an_unknown_kind_of_election_is_refused(three_brokers):
    elections = LeaderElections(ElectLeadersRequest(election_type=7), three_brokers.logs)
    (reply,) = [part(three_brokers.image).reply for part in elections.parts()]
    assert reply.error_code == ErrorCode.INVALID_REQUEST


def test_preferred_leaders_are_elected_if_too_many_partitions_have_another_leader(three_brokers):
    three_brokers.create_by_hand("a", *[(1, 2)] * 9, (2, 1))
    move_away(three_brokers, 1)
    assert unbalanced_brokers(three_brokers.image, percentage=100) == []
    assert unbalanced_brokers(three_brokers.image, percentage=10) == [1]
    sweep = leaders_home(three_brokers.image, 1)
    while not sweep.is_done:
        three_brokers.replay(sweep.next_changes(three_brokers.image))
    assert [p.leader for p in three_brokers.topic("a").partitions] == [1] * 9 + [2]
    assert unbalanced_brokers(three_brokers.image, percentage=10) == []


def test_a_preferred_replica_that_is_fenced_or_not_in_sync_is_not_elected(three_brokers):
    three_brokers.create_by_hand("a", (1, 2))
    end_session(three_brokers, 1)
    assert unbalanced_brokers(three_brokers.image, percentage=10) == []
    three_brokers.beat(1)
    assert unbalanced_brokers(three_brokers.image, percentage=10) == [1]
    assert leaders_home(three_brokers.image, 1).next_changes(three_brokers.image) == ()


def configure(cluster, name, value, topic="a"):
    kind = CONFIG_RESOURCE_TYPE_TOPIC if topic else CONFIG_RESOURCE_TYPE_BROKER
    operation = CONFIG_OPERATION_DELETE if value is None else CONFIG_OPERATION_SET
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource=ConfigResource(type=kind, name=topic),
                changes=[ConfigChange(name=name, operation=operation, value=value or "")],
            )
        ]
    )
    reply = cluster.apply(handle_incremental_alter_configs(request, cluster.image))
    assert not reply.results[0].error_code, reply


@pytest.mark.parametrize("topic", ["a", ""])
def test_enabling_unclean_elections_elects_at_the_next_log_report(three_brokers, topic):
    three_brokers.create_by_hand("a", (1, 2))
    end_session(three_brokers, 2)
    end_session(three_brokers, 1)
    three_brokers.beat(2)
    assert three_brokers.report_log(2, 0, 10) == NO_LEADER
    configure(three_brokers, "unclean.leader.election.enable", "true", topic)
    assert three_brokers.report_log(2, 0, 10) == 2


@pytest.mark.parametrize("topic", ["a", ""])
def test_a_lower_min_isr_removes_replicas_that_may_lack_records_from_the_elr(three_brokers, topic):
    configure(three_brokers, "min.insync.replicas", "2", "")
    three_brokers.create_by_hand("a", (1, 2), **({"min_insync_replicas": "2"} if topic else {}))
    end_session(three_brokers, 2)
    assert three_brokers.partition("a").elr == (2,)
    configure(three_brokers, "min.insync.replicas", "1", topic)
    partition = three_brokers.partition("a")
    assert (partition.leader, partition.isr, partition.elr) == (1, (1,), ())


def test_a_lower_min_isr_keeps_the_elr_of_a_partition_without_a_leader(three_brokers):
    three_brokers.create_by_hand("a", (1, 2), min_insync_replicas="2")
    end_session(three_brokers, 2)
    end_session(three_brokers, 1)
    configure(three_brokers, "min.insync.replicas", "1")
    assert three_brokers.partition("a").elr == (2, 1)
    three_brokers.beat(2)
    partition = three_brokers.partition("a")
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), ())


def test_the_smallest_min_isr_of_the_brokers_static_configs_applies(cluster):
    cluster.add_broker(1, static_configs={"min.insync.replicas": "2"})
    cluster.add_broker(2, static_configs={"min.insync.replicas": "1"})
    cluster.create_by_hand("a", (1, 2))
    end_session(cluster, 2)
    assert cluster.partition("a").elr == ()


def unregister(cluster, broker_id):
    request = UnregisterBrokerRequest(broker_id=broker_id)
    return cluster.apply(handle_unregister_broker(request, cluster.image))


def test_an_unregistered_broker_leaves_isr_and_elr_but_stays_assigned(three_brokers):
    three_brokers.create_by_hand("a", (1, 2), (2, 1), min_insync_replicas="2")
    end_session(three_brokers, 1)
    assert three_brokers.partition("a").elr == (1,)
    assert not unregister(three_brokers, 1).error_code
    assert 1 not in three_brokers.image.brokers
    assert {(p.leader, p.isr, p.elr) for p in three_brokers.topic("a").partitions} == {(2, (2,), ())}
    assert three_brokers.partition("a").replicas == (1, 2)

    three_brokers.add_broker(1, life=1)
    three_brokers.bring_into_sync(1)
    assert elect(three_brokers, ELECTION_TYPE_PREFERRED) == {("a", 0): ErrorCode.NONE}


def test_an_unknown_broker_cannot_be_unregistered(three_brokers):
    reply = unregister(three_brokers, 9)
    assert (reply.error_code, reply.error_message) == (
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        "broker 9 is not registered",
    )
