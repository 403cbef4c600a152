from __future__ import annotations

import pytest

from klamm_controller.metadata import sweep as sweep_module
from klamm_controller.metadata.brokers import (
    BrokerRegistration,
    handle_broker_heartbeat,
    handle_broker_session_end,
)
from klamm_controller.metadata.leader_election import Stop, end_of_life
from klamm_controller.metadata.sweep import CHANGES_PER_EVENT, Sweep, all_partitions
from klamm_server.metadata.entities import NO_LEADER

MANY = 2 * CHANGES_PER_EVENT + 50


@pytest.fixture
def cluster(three_brokers):
    """Returns a cluster whose topic "a" has more partitions than one change may have, on brokers 1 and 2."""
    for number in range(MANY // 50):
        three_brokers.create_by_hand(f"a{number}", *[(1, 2)] * 50)
    return three_brokers


def partitions(cluster):
    return [p for topic in cluster.image.topics_by_id.values() for p in topic.partitions]


def slices(cluster, decision):
    """Replays the decision. Returns the number of partition changes in it and in each slice of its sweep."""
    cluster.replay(decision.records)
    counts = [sum(r.HasField("partition_change") for r in decision.records)]
    while not decision.sweep.is_done:
        changes = decision.sweep.next_changes(cluster.image)
        cluster.replay(changes)
        counts.append(len(changes))
    return counts


def test_the_partitions_of_a_lost_broker_are_changed_in_slices(cluster):
    decision = handle_broker_session_end(1, cluster.image)
    assert slices(cluster, decision) == [CHANGES_PER_EVENT, CHANGES_PER_EVENT, 50]
    assert all((p.leader, p.isr) == (2, (2,)) for p in partitions(cluster))


def test_a_controlled_shutdown_is_granted_when_its_sweep_is_done(cluster):
    decision = handle_broker_heartbeat(cluster.heartbeat(1, want_shutdown=True), cluster.image)
    cluster.replay(decision.records)
    beat = cluster.heartbeat(1, want_shutdown=True)
    waits = handle_broker_heartbeat(beat, cluster.image)
    assert (waits.records, waits.reply.should_shutdown) == ((), False)
    while not decision.sweep.is_done:
        cluster.replay(decision.sweep.next_changes(cluster.image))
    assert handle_broker_heartbeat(beat, cluster.image).reply.should_shutdown


def test_a_broker_that_returns_during_the_sweep_of_its_loss_keeps_the_remaining_partitions(cluster):
    decision = handle_broker_session_end(1, cluster.image)
    cluster.replay(decision.records)
    back = handle_broker_heartbeat(cluster.heartbeat(1), cluster.image)
    cluster.replay(back.records)
    assert decision.sweep.next_changes(cluster.image) == ()
    assert sum(p.isr == (1, 2) for p in partitions(cluster)) == MANY - CHANGES_PER_EVENT


def test_a_returning_broker_leads_its_leaderless_partition_behind_many_others(cluster, monkeypatch):
    monkeypatch.setattr(sweep_module, "PARTITIONS_PER_EVENT", 100)
    cluster.create_by_hand("z", (3,))
    cluster.apply(handle_broker_session_end(3, cluster.image))
    assert cluster.partition("z").leader == NO_LEADER
    cluster.beat(3)
    assert cluster.partition("z").leader == 3


def test_a_new_controller_completes_the_unfinished_sweep_of_the_last_one(cluster):
    cluster.replay(handle_broker_session_end(1, cluster.image).records)
    sweep = Sweep("claim", all_partitions(cluster.image))
    while not sweep.is_done:
        cluster.replay(sweep.next_changes(cluster.image))
    assert all((p.leader, p.isr) == (2, (2,)) for p in partitions(cluster))


def test_sweep_changes_that_are_put_back_are_computed_again(cluster):
    decision = handle_broker_session_end(1, cluster.image)
    cluster.replay(decision.records)
    first = decision.sweep.next_changes(cluster.image)
    decision.sweep.put_back()
    assert decision.sweep.next_changes(cluster.image) == first


def test_a_sweep_skips_topics_that_were_deleted_meanwhile(cluster):
    sweep = Sweep("all", all_partitions(cluster.image), end_of_life(1, Stop.UNCLEAN))
    cluster.remove("a0")
    while not sweep.is_done:
        cluster.replay(sweep.next_changes(cluster.image))
    assert all(1 not in p.isr for p in partitions(cluster))


def test_a_crashed_broker_is_registered_after_it_left_all_isrs_and_leaderships(cluster):
    before = cluster.image.brokers[1]
    registration = BrokerRegistration(cluster.broker_request(1, life=1))
    parts = 0
    while True:
        decision = registration.next_part(cluster.image, session_live=True)
        cluster.replay(decision.records)
        parts += 1
        if decision.is_last:
            break
        ending = cluster.image.brokers[1]
        assert (ending.broker_epoch, ending.fenced, ending.in_controlled_shutdown) == (before.broker_epoch, True, True)
        cluster.beat(1)
        assert cluster.image.brokers[1].fenced, "a heartbeat of the life that ends does not bring it back"
    assert parts == 3
    tally = cluster.image.index.tally(1)
    assert (tally.led, tally.in_sync, tally.eligible) == (0, 0, 0)
    assert cluster.image.brokers[1].broker_epoch == decision.reply.epoch > before.broker_epoch
