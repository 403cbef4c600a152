from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from klamm.model import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from klamm.wire.v1.controller_pb2 import NewTopic
from klamm_controller.metadata.coordinators import handle_coordinator_session_end
from klamm_controller.metadata.shards import WRITER_EPOCH_MAX, assignment_records, balance
from klamm_server.metadata.entities import ShardImage

INTERNAL = NewTopic(name=GROUP_METADATA_TOPIC, partition_count=-1, replication_factor=-1)


@given(
    owners=st.lists(st.integers(-1, 5), min_size=1, max_size=50),
    live=st.sets(st.integers(0, 5)).map(sorted),
)
def test_the_shard_balance_is_even_sticky_and_complete(owners, live):
    after = balance(owners, live)
    if not live:
        assert after == [-1] * len(owners)
        return
    counts = Counter(after)
    assert set(counts) <= set(live)
    assert max(counts.values()) - min(counts[i] for i in live) <= 1

    # The number of moves is minimal if every live owner keeps as many shards as an even share permits.
    share, larger_shares = divmod(len(owners), len(live))
    had = sorted((owners.count(i) for i in live), reverse=True)
    kept_at_most = sum(min(count, share + (rank < larger_shares)) for rank, count in enumerate(had))
    assert sum(a == b for a, b in zip(owners, after, strict=True)) == kept_at_most


def test_each_shard_of_a_new_topic_has_its_own_producer_id(one_broker):
    one_broker.add_coordinator(1)
    one_broker.add_coordinator(2)
    one_broker.create(INTERNAL)
    one_broker.create(NewTopic(name=TRANSACTION_STATE_TOPIC, partition_count=-1, replication_factor=-1))
    shards = one_broker.image.shards
    assert Counter(one_broker.shard_owners(GROUP_METADATA_TOPIC)) == {1: 3, 2: 3}
    assert Counter(one_broker.shard_owners(TRANSACTION_STATE_TOPIC)) == {1: 2, 2: 2}
    ids = [shard.producer_id for shard in shards.values()]
    assert sorted(ids) == list(range(10))
    assert one_broker.image.next_producer_id == 10
    assert {shard.writer_epoch for shard in shards.values()} == {0}


def test_only_shards_of_a_dead_coordinator_move_and_get_a_greater_writer_epoch(one_broker):
    one_broker.add_coordinator(1)
    one_broker.add_coordinator(2)
    one_broker.create(INTERNAL)
    before = one_broker.image.shards

    one_broker.apply(handle_coordinator_session_end(1, one_broker.image))

    for key, shard in one_broker.image.shards.items():
        assert shard.coordinator_id == 2
        moved = before[key].coordinator_id == 1
        assert shard.writer_epoch == before[key].writer_epoch + moved
        assert shard.producer_id == before[key].producer_id


def test_without_a_live_coordinator_shards_have_no_owner_until_one_registers(one_broker):
    one_broker.add_coordinator(1)
    one_broker.create(INTERNAL)
    one_broker.apply(handle_coordinator_session_end(1, one_broker.image))
    assert one_broker.shard_owners(GROUP_METADATA_TOPIC) == [-1] * 6

    one_broker.add_coordinator(1, life=1)
    assert one_broker.shard_owners(GROUP_METADATA_TOPIC) == [1] * 6
    assert all(shard.writer_epoch > 0 for shard in one_broker.image.shards.values())


def test_a_coordinator_that_registers_again_gets_a_greater_writer_epoch(one_broker):
    one_broker.add_coordinator(1)
    one_broker.create(INTERNAL)
    before = {key: shard.writer_epoch for key, shard in one_broker.image.shards.items()}
    one_broker.add_coordinator(1, life=1)
    assert one_broker.shard_owners(GROUP_METADATA_TOPIC) == [1] * 6
    assert all(shard.writer_epoch > before[key] for key, shard in one_broker.image.shards.items())


def test_a_balanced_assignment_makes_no_records(one_broker):
    one_broker.add_coordinator(1)
    one_broker.create(INTERNAL)
    assert assignment_records(one_broker.image) == []


def test_a_shard_at_the_maximum_writer_epoch_gets_a_new_producer_id(one_broker):
    one_broker.add_coordinator(1)
    one_broker.create(INTERNAL)
    key = (GROUP_METADATA_TOPIC, 3)
    worn = ShardImage(coordinator_id=9, producer_id=3, writer_epoch=WRITER_EPOCH_MAX, coordinator_epoch=70_000)
    one_broker.image = replace(one_broker.image, shards={**one_broker.image.shards, key: worn})
    one_broker.replay(assignment_records(one_broker.image))
    assert one_broker.image.shards[key] == ShardImage(
        coordinator_id=1, producer_id=6, writer_epoch=0, coordinator_epoch=70_001, former_producer_id=3
    )
    assert one_broker.image.next_producer_id == 7


def test_the_former_producer_id_of_a_shard_is_kept_for_all_later_owners(one_broker):
    """The first owner may have died before it could fence the producer."""
    one_broker.add_coordinator(1)
    one_broker.create(INTERNAL)
    key = (GROUP_METADATA_TOPIC, 3)
    first = ShardImage(coordinator_id=9, producer_id=5, writer_epoch=0, coordinator_epoch=32_767, former_producer_id=3)
    one_broker.image = replace(one_broker.image, shards={**one_broker.image.shards, key: first})
    one_broker.replay(assignment_records(one_broker.image))
    assert one_broker.image.shards[key] == replace(first, coordinator_id=1, writer_epoch=1, coordinator_epoch=32_768)
