from __future__ import annotations

import pytest

from klamm.errors import ErrorCode
from klamm.wire.v1.common_pb2 import AdvertisedListener, Endpoint
from klamm.wire.v1.controller_pb2 import UnregisterBrokerRequest
from klamm_controller.metadata.brokers import (
    handle_broker_heartbeat,
    handle_broker_session_end,
    handle_unregister_broker,
)
from tests.support.whole_decisions import handle_register_broker


def listener(name: str, port: int = 9092) -> AdvertisedListener:
    return AdvertisedListener(name=name, protocol="KAFKA", endpoint=Endpoint(host="h", port=port))


def register(cluster, broker_id, /, life=0, *, live=False, **changes):
    request = cluster.broker_request(broker_id, life, **changes)
    return cluster.apply(handle_register_broker(request, cluster.image, session_live=live))


def test_a_broker_registers_fenced_and_its_epoch_is_the_index_of_the_record(cluster):
    index = cluster.image.end_index
    reply = register(cluster, 1, rack="r1", static_configs={"log.retention.hours": "3"})
    broker = cluster.image.brokers[1]
    assert (reply.epoch, reply.cluster_id, reply.error_code) == (index, cluster.image.cluster_id, 0)
    assert (broker.broker_epoch, broker.fenced, broker.rack) == (index, True, "r1")
    assert (broker.host, broker.port) == ("localhost", 9_001)
    assert broker.static_configs == {"log.retention.hours": "3"}


def test_listeners_are_registered_by_name_and_those_of_older_brokers_by_protocol(cluster):
    register(cluster, 1, listeners=[listener("PUBLIC"), listener("INTERNAL", 9093)])
    register(cluster, 2, kafka_endpoint=Endpoint(host="k", port=9092))
    named = [(one.name, *one.address) for one in cluster.image.brokers[1].listeners]
    assert named == [("PUBLIC", "h", 9092), ("INTERNAL", "h", 9093)]
    plain = [(one.name, *one.address) for one in cluster.image.brokers[2].listeners]
    assert plain == [("GRPC", "localhost", 9002), ("KAFKA", "k", 9092)]


def test_a_repeated_registration_is_answered_as_the_first_time(cluster):
    first = register(cluster, 1)
    end_index = cluster.image.end_index
    again = register(cluster, 1, live=True)
    assert again == first
    assert cluster.image.end_index == end_index


SAME_DIRS: dict[str, object] = {}
OTHER_DIRS = {"log_dir_ids": [b"x" * 16]}


@pytest.mark.parametrize(
    ("live", "changes", "accepted"),
    [(True, SAME_DIRS, True), (False, OTHER_DIRS, True), (False, SAME_DIRS, True), (True, OTHER_DIRS, False)],
)
def test_only_a_live_broker_with_other_log_dirs_keeps_its_id_from_a_new_registration(
    one_broker, live, changes, accepted
):
    before = one_broker.image.brokers[1]
    reply = register(one_broker, 1, life=1, live=live, **changes)
    if accepted:
        assert reply.epoch > before.broker_epoch
        assert one_broker.image.brokers[1].broker_epoch == reply.epoch
    else:
        assert reply.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert "localhost:9001" in reply.error_message
        assert one_broker.image.brokers[1] is before


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID, "other"),
        ({"broker_id": -1}, ErrorCode.INVALID_REGISTRATION, "-1"),
        ({"incarnation_id": b"short"}, ErrorCode.INVALID_REGISTRATION, "5 bytes"),
        ({"endpoint": Endpoint(host="", port=1)}, ErrorCode.INVALID_REGISTRATION, "''"),
        ({"endpoint": Endpoint(host="h", port=0)}, ErrorCode.INVALID_REGISTRATION, ":0"),
        ({"endpoint": Endpoint(host="h", port=70_000)}, ErrorCode.INVALID_REGISTRATION, "70000"),
        ({"listeners": [listener("A", port=0)]}, ErrorCode.INVALID_REGISTRATION, ":0"),
        ({"listeners": [listener("A"), listener("A")]}, ErrorCode.INVALID_REGISTRATION, "a listener twice: A, A"),
        ({"log_dir_ids": []}, ErrorCode.INVALID_REGISTRATION, "log directories"),
        ({"log_dir_ids": [b"x"]}, ErrorCode.INVALID_REGISTRATION, "16-byte"),
        ({"log_dir_ids": [b"x" * 16, b"x" * 16]}, ErrorCode.INVALID_REGISTRATION, "each once"),
    ],
)
def test_an_invalid_broker_registration_is_refused(cluster, changes, code, said):
    reply = register(cluster, 1, **changes)
    assert ErrorCode.of(reply.error_code) is code
    assert said in reply.error_message
    assert not cluster.image.brokers


def test_only_a_heartbeat_that_has_seen_the_registration_unfences_the_broker(cluster):
    epoch = register(cluster, 1).epoch
    cluster.beat(1, metadata_end_index=epoch)
    assert cluster.image.brokers[1].fenced
    cluster.beat(1, metadata_end_index=epoch + 1)
    assert not cluster.image.brokers[1].fenced


def test_a_heartbeat_in_a_steady_state_makes_no_record(one_broker):
    decision = handle_broker_heartbeat(one_broker.heartbeat(1), one_broker.image)
    assert decision.records == ()
    assert not decision.reply.fenced


def test_heartbeats_of_unregistered_brokers_and_of_stale_epochs_are_refused(one_broker):
    reply = handle_broker_heartbeat(one_broker.heartbeat(1, broker_id=9), one_broker.image).reply
    assert reply.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    stale = one_broker.heartbeat(1)
    one_broker.register_broker(1, life=1)
    reply = handle_broker_heartbeat(stale, one_broker.image).reply
    assert reply.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert one_broker.image.brokers[1].fenced


def test_the_only_replica_stays_eligible_and_leads_again_with_a_new_epoch(one_broker):
    one_broker.create_one("a")
    one_broker.apply(handle_broker_session_end(1, one_broker.image))
    partition = one_broker.partition("a")
    assert one_broker.image.brokers[1].fenced
    assert (partition.leader, partition.isr, partition.elr, partition.leader_epoch) == (-1, (), (1,), 1)

    one_broker.beat(1)
    partition = one_broker.partition("a")
    assert (partition.leader, partition.isr, partition.elr, partition.leader_epoch) == (1, (1,), (), 2)


def test_the_next_in_sync_replica_replaces_a_fenced_leader(three_brokers):
    three_brokers.create_one("a", 6, 3)
    before = three_brokers.topic("a").partitions
    three_brokers.apply(handle_broker_session_end(2, three_brokers.image))
    for old, new in zip(before, three_brokers.topic("a").partitions, strict=True):
        assert new.isr == tuple(i for i in old.replicas if i != 2)
        assert new.leader == new.isr[0]
        assert new.leader_epoch == (1 if old.leader == 2 else 0)
        assert new.partition_epoch == 1


def test_the_last_in_sync_replica_stays_in_the_elr_and_no_other_replica_can_lead(three_brokers):
    three_brokers.create_one("a", 1, 3)
    for broker_id in (1, 2, 3):
        three_brokers.apply(handle_broker_session_end(broker_id, three_brokers.image))
    partition = three_brokers.partition("a")
    (last,) = partition.elr
    assert (partition.leader, partition.isr) == (-1, ())

    for returning in sorted({1, 2, 3} - {last}):
        three_brokers.beat(returning)
        assert three_brokers.partition("a").leader == -1
    three_brokers.beat(last)
    assert three_brokers.partition("a").leader == last


def test_a_session_end_of_a_fenced_or_unknown_broker_changes_nothing(one_broker):
    one_broker.apply(handle_broker_session_end(1, one_broker.image))
    assert handle_broker_session_end(1, one_broker.image).records == ()
    assert handle_broker_session_end(9, one_broker.image).records == ()


def crash(cluster, broker_id, life=1):
    """Registers a new incarnation of the broker, which does not report an orderly stop of the former one."""
    register(cluster, broker_id, life=life, live=True)


def stop_and_start(cluster, broker_id, life=1):
    epoch = cluster.image.brokers[broker_id].broker_epoch
    register(cluster, broker_id, life=life, previous_broker_epoch=epoch)


def test_a_broker_after_a_clean_shutdown_stays_in_the_elr(three_brokers):
    three_brokers.create_by_hand("a", (1, 2), min_insync_replicas="2")
    stop_and_start(three_brokers, 2)
    assert (three_brokers.partition("a").isr, three_brokers.partition("a").elr) == ((1,), (2,))
    crash(three_brokers, 1)
    assert (three_brokers.partition("a").isr, three_brokers.partition("a").elr) == ((), (2,))
    three_brokers.beat(2)
    assert (three_brokers.partition("a").leader, three_brokers.partition("a").isr) == (2, (2,))


def test_a_broker_after_a_crash_is_neither_in_the_isr_nor_in_the_elr(three_brokers):
    three_brokers.create_by_hand("a", (1, 2, 3), min_insync_replicas="3")
    three_brokers.apply(handle_broker_session_end(2, three_brokers.image))
    assert (three_brokers.partition("a").isr, three_brokers.partition("a").elr) == ((1, 3), (2,))
    crash(three_brokers, 2)
    crash(three_brokers, 3)
    assert (three_brokers.partition("a").isr, three_brokers.partition("a").elr) == ((1,), ())


def test_without_isr_and_elr_the_last_known_elr_is_kept_and_the_partition_has_no_leader(three_brokers):
    three_brokers.create_by_hand("a", (1, 2, 3), min_insync_replicas="2")
    for broker_id in (1, 2, 3):
        crash(three_brokers, broker_id)
    partition = three_brokers.partition("a")
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (-1, (), (), (3, 2))

    for broker_id in (1, 2, 3):
        three_brokers.beat(broker_id)
        assert three_brokers.partition("a").leader == -1


def test_a_crashed_replica_stays_in_the_last_known_elr_until_min_isr_is_reached(three_brokers):
    three_brokers.create_by_hand("a", (1, 2), min_insync_replicas="2")
    crash(three_brokers, 2)
    partition = three_brokers.partition("a")
    assert (partition.leader, partition.elr, partition.last_known_elr) == (1, (), (2,))
    three_brokers.beat(2)
    three_brokers.bring_into_sync(2, "a")
    assert three_brokers.partition("a").last_known_elr == ()


def test_the_only_replica_leads_again_even_after_a_crash(one_broker):
    one_broker.create_one("a", unclean_recovery_strategy="None")
    crash(one_broker, 1)
    assert (one_broker.partition("a").leader, one_broker.partition("a").last_known_elr) == (-1, (1,))
    one_broker.beat(1)
    assert (one_broker.partition("a").leader, one_broker.partition("a").last_known_elr) == (1, ())


def test_a_broker_that_lost_a_log_dir_leaves_the_elr_even_after_a_clean_shutdown(three_brokers):
    """The lost log dir may have had the replica, which is empty now."""
    three_brokers.create_by_hand("a", (1, 2), min_insync_replicas="2")
    three_brokers.apply(handle_broker_session_end(2, three_brokers.image))
    assert three_brokers.partition("a").elr == (2,)
    epoch = three_brokers.image.brokers[2].broker_epoch
    register(three_brokers, 2, life=1, previous_broker_epoch=epoch, **OTHER_DIRS)
    assert (three_brokers.partition("a").isr, three_brokers.partition("a").elr) == ((1,), ())
    crash(three_brokers, 1)
    assert three_brokers.partition("a").last_known_elr == (1,)


def test_a_last_known_leader_with_other_log_dirs_does_not_lead_again(three_brokers):
    """The other replicas may lack records, but have more than an empty replica."""
    three_brokers.create_by_hand("a", (1, 2, 3), min_insync_replicas="2")
    for broker_id in (1, 2, 3):
        crash(three_brokers, broker_id)
    assert three_brokers.partition("a").last_known_elr == (3, 2)
    register(three_brokers, 3, life=2, **OTHER_DIRS)
    for broker_id in (1, 2, 3):
        three_brokers.beat(broker_id)
    partition = three_brokers.partition("a")
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (-1, (), (), (2,))


def test_a_leader_that_registers_with_other_log_dirs_during_its_session_does_not_lead_again(one_broker):
    one_broker.create_one("a")
    register(one_broker, 1, life=1, **OTHER_DIRS)
    one_broker.beat(1)
    partition = one_broker.partition("a")
    assert (partition.leader, partition.isr, partition.last_known_elr) == (-1, (), ())


def test_a_broker_with_an_additional_log_dir_stays_in_the_elr(three_brokers):
    three_brokers.create_by_hand("a", (1, 2), min_insync_replicas="2")
    before = three_brokers.image.brokers[2]
    more = [*before.log_dir_ids, b"x" * 16]
    register(three_brokers, 2, life=1, previous_broker_epoch=before.broker_epoch, log_dir_ids=more)
    assert three_brokers.partition("a").elr == (2,)


def test_an_unregistered_broker_does_not_lead_its_partitions_after_a_new_registration(one_broker):
    """The controller no longer knows the log dirs of an unregistered broker."""
    one_broker.create_one("a")
    epoch = one_broker.image.brokers[1].broker_epoch
    one_broker.apply(handle_unregister_broker(UnregisterBrokerRequest(broker_id=1), one_broker.image))
    register(one_broker, 1, life=1, previous_broker_epoch=epoch)
    one_broker.beat(1)
    assert one_broker.partition("a").leader == -1


def test_a_new_registration_removes_leaderships_until_the_broker_is_unfenced(one_broker):
    one_broker.create_one("a")
    one_broker.register_broker(1, life=1)
    assert one_broker.partition("a").leader == -1
    one_broker.beat(1)
    assert (one_broker.partition("a").leader, one_broker.partition("a").leader_epoch) == (1, 2)


def shutdown(cluster, broker_id):
    beat = cluster.heartbeat(broker_id, want_shutdown=True)
    return cluster.apply(handle_broker_heartbeat(beat, cluster.image))


def test_a_controlled_shutdown_moves_leaders_first_and_fences_last(three_brokers):
    three_brokers.create_one("a", 3, 2)

    first = shutdown(three_brokers, 1)
    assert (first.should_shutdown, first.fenced) == (False, False)
    assert three_brokers.image.brokers[1].in_controlled_shutdown
    assert all(p.leader != 1 and p.leader != -1 for p in three_brokers.topic("a").partitions)
    assert all(1 not in p.isr for p in three_brokers.topic("a").partitions), "nobody waits for it any more"

    second = shutdown(three_brokers, 1)
    assert (second.should_shutdown, second.fenced) == (True, True)
    assert three_brokers.image.brokers[1].fenced
    assert all(1 not in p.isr for p in three_brokers.topic("a").partitions)

    assert shutdown(three_brokers, 1).should_shutdown, "asked once more, the answer is the same"
    three_brokers.beat(1)
    assert three_brokers.image.brokers[1].fenced, "only a new registration brings it back"
    three_brokers.add_broker(1, life=1)


def test_a_lone_broker_may_shut_down_too(one_broker):
    one_broker.create_one("a")
    assert not shutdown(one_broker, 1).should_shutdown
    assert one_broker.partition("a").leader == -1
    assert shutdown(one_broker, 1).should_shutdown
    one_broker.add_broker(1, life=1)
    assert one_broker.partition("a").leader == 1
