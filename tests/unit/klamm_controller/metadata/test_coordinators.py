from __future__ import annotations

import pytest

from klamm.errors import ErrorCode
from klamm.model import GROUP_METADATA_TOPIC
from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.controller_pb2 import AllocateProducerIdsRequest, NewTopic
from klamm_controller.metadata.coordinators import handle_coordinator_heartbeat, handle_register_coordinator
from klamm_controller.metadata.producer_ids import BLOCK_SIZE, handle_allocate_producer_ids

INTERNAL = NewTopic(name=GROUP_METADATA_TOPIC, partition_count=-1, replication_factor=-1)


def register(cluster, coordinator_id, /, life=0, *, live=False, **changes):
    request = cluster.coordinator_request(coordinator_id, life, **changes)
    return cluster.apply(handle_register_coordinator(request, cluster.image, session_live=live))


def beat(cluster, coordinator_id, /, **changes):
    request = cluster.coordinator_heartbeat(coordinator_id, **changes)
    return cluster.apply(handle_coordinator_heartbeat(request, cluster.image))


@pytest.mark.parametrize(("live", "port", "accepted"), [(True, 9_501, True), (False, 1, True), (True, 1, False)])
def test_only_a_live_coordinator_at_another_address_keeps_its_id_from_a_new_registration(cluster, live, port, accepted):
    cluster.add_coordinator(1)
    before = cluster.image.coordinators[1]
    reply = register(cluster, 1, life=1, live=live, endpoint=Endpoint(host="localhost", port=port))
    if accepted:
        assert reply.epoch > before.coordinator_epoch
        assert cluster.image.coordinators[1].fenced
    else:
        assert reply.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert cluster.image.coordinators[1] is before


def test_a_repeated_registration_is_answered_as_the_first_time(cluster):
    first = register(cluster, 1)
    assert register(cluster, 1, live=True, endpoint=Endpoint(host="elsewhere", port=1)) == first


def test_an_invalid_coordinator_registration_is_refused(cluster):
    assert register(cluster, 1, cluster_id="other").error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert register(cluster, 1, incarnation_id=b"").error_code == ErrorCode.INVALID_REGISTRATION
    assert not cluster.image.coordinators


def test_only_a_heartbeat_that_has_seen_the_registration_unfences_and_assigns_shards(one_broker):
    one_broker.create(INTERNAL)
    epoch = register(one_broker, 1).epoch
    assert beat(one_broker, 1, metadata_end_index=epoch).fenced
    assert one_broker.shard_owners(GROUP_METADATA_TOPIC) == [-1] * 6
    assert not beat(one_broker, 1, metadata_end_index=epoch + 1).fenced
    assert one_broker.shard_owners(GROUP_METADATA_TOPIC) == [1] * 6
    assert handle_coordinator_heartbeat(one_broker.coordinator_heartbeat(1), one_broker.image).records == ()


def test_a_controlled_shutdown_moves_all_shards_in_one_step(one_broker):
    one_broker.create(INTERNAL)
    one_broker.add_coordinator(1)
    one_broker.add_coordinator(2)
    reply = beat(one_broker, 1, want_shutdown=True)
    assert (reply.fenced, reply.should_shutdown) == (True, True)
    assert one_broker.shard_owners(GROUP_METADATA_TOPIC) == [2] * 6
    assert beat(one_broker, 1, want_shutdown=True).should_shutdown


def test_heartbeats_of_unregistered_coordinators_and_of_stale_epochs_are_refused(cluster):
    cluster.add_coordinator(1)
    assert beat(cluster, 1, coordinator_id=5).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert beat(cluster, 1, coordinator_epoch=0).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_each_producer_id_is_allocated_only_once(one_broker):
    one_broker.add_coordinator(1)
    one_broker.create(INTERNAL)
    epoch = one_broker.image.coordinators[1].coordinator_epoch
    of_coordinator = AllocateProducerIdsRequest(coordinator_id=1, coordinator_epoch=epoch)
    of_broker = AllocateProducerIdsRequest(broker_id=1, broker_epoch=one_broker.image.brokers[1].broker_epoch)
    blocks = []
    for request in (of_coordinator, of_broker, of_coordinator):
        reply = one_broker.apply(handle_allocate_producer_ids(request, one_broker.image))
        blocks.append(range(reply.first_producer_id, reply.first_producer_id + reply.count))
    used = {shard.producer_id for shard in one_broker.image.shards.values()}
    handed_out = [producer_id for block in blocks for producer_id in block]
    assert len(handed_out) == 3 * BLOCK_SIZE == len(set(handed_out) - used)


@pytest.mark.parametrize(("coordinator_id", "epoch_change", "code"), [(1, 1, 77), (2, 0, 102)])
def test_only_registered_coordinators_with_the_current_epoch_get_producer_ids(
    cluster, coordinator_id, epoch_change, code
):
    cluster.add_coordinator(1)
    request = AllocateProducerIdsRequest(
        coordinator_id=coordinator_id,
        coordinator_epoch=cluster.image.coordinators[1].coordinator_epoch + epoch_change,
    )
    decision = handle_allocate_producer_ids(request, cluster.image)
    assert (decision.reply.error_code, decision.records) == (code, ())


@pytest.mark.parametrize(("broker_id", "epoch_change", "code"), [(1, 1, 77), (2, 0, 102)])
def test_only_registered_brokers_with_the_current_epoch_get_producer_ids(one_broker, broker_id, epoch_change, code):
    epoch = one_broker.image.brokers[1].broker_epoch + epoch_change
    request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)
    decision = handle_allocate_producer_ids(request, one_broker.image)
    assert (decision.reply.error_code, decision.records) == (code, ())
