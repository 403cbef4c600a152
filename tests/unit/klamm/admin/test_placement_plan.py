from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.admin.placement_plan import plan_reassignment
from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import TopicPartition

RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}


def partitions(*replicas):
    return {TopicPartition("t", number): replica for number, replica in enumerate(replicas)}


def off(broker_id, current, racks=RACKS, **options):
    others = [rack for rack in racks if rack != broker_id]
    return plan_reassignment(current, racks, **{"targets": others, "stay": others, **options})


def test_only_replicas_of_the_removed_broker_move_and_keep_their_position_in_the_list():
    current = partitions((1, 2, 3), (2, 3, 4), (2, 1, 3))
    assert off(1, current) == {TopicPartition("t", 0): (4, 2, 3), TopicPartition("t", 2): (2, 4, 3)}


def test_replicas_move_to_racks_that_their_partition_does_not_use_if_possible():
    planned = off(3, partitions(*[(1, 2, 3)] * 10))
    assert set(planned.values()) == {(1, 2, 6)}
    without_6 = {each: rack for each, rack in RACKS.items() if each != 6}
    planned = off(3, partitions(*[(1, 2, 3)] * 10), without_6)
    assert Counter(planned.values()) == {(1, 2, 4): 5, (1, 2, 5): 5}


def test_moved_replicas_and_leaders_are_spread_evenly():
    racks = dict.fromkeys(range(1, 6), "")
    current = partitions(*[(1, 2), (1, 3), (1, 4), (1, 5)] * 10)
    planned = off(1, current, racks)
    after = {**current, **planned}
    hosted = Counter(replica for replicas in after.values() for replica in replicas)
    led = Counter(replicas[0] for replicas in after.values())
    assert set(hosted) == {2, 3, 4, 5}
    assert max(led.values()) - min(led.values()) <= 1
    assert max(hosted.values()) - min(hosted.values()) <= 2
    assert all(len(set(replicas)) == 2 for replicas in after.values())


def test_a_plan_leaves_replicas_on_a_down_broker_and_moves_none_to_it():
    current = partitions((1, 4), (4, 1))
    planned = plan_reassignment(current, RACKS, targets=[2], stay=[2, 4])
    assert planned == {TopicPartition("t", 0): (2, 4), TopicPartition("t", 1): (4, 2)}


def test_a_plan_changes_the_replication_factor():
    current = partitions((1, 2, 3), (2,))
    everybody = list(RACKS)
    fewer = plan_reassignment(current, RACKS, targets=everybody, stay=everybody, replication_factor=1)
    assert fewer == {TopicPartition("t", 0): (1,)}
    more = plan_reassignment(current, RACKS, targets=everybody, stay=everybody, replication_factor=3)
    ((tp, replicas),) = more.items()
    assert (tp.partition, replicas[0], {RACKS[replica] for replica in replicas}) == (1, 2, {"a", "b", "c"})


def test_a_plan_moves_only_the_chosen_partitions():
    current = partitions((1,), (1,))
    assert off(1, current, moving=[TopicPartition("t", 1)]) == {TopicPartition("t", 1): (2,)}


def test_a_plan_with_too_few_brokers_is_refused():
    with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_REPLICATION_FACTOR], match="t-0 needs 3 brokers"):
        off(1, partitions((1, 2, 3)), {1: "", 2: "", 3: ""})


PATHS = st.builds("{}/{}".format, st.sampled_from(["dc1", "dc2"]), st.sampled_from(["h1", "h2", "h3"]))


@given(racks=st.lists(PATHS, min_size=3, max_size=10), count=st.integers(1, 10), size=st.integers(1, 4), data=st.data())
def test_moved_replicas_share_a_host_only_without_another(racks, count, size, data):
    of = dict(enumerate(racks))
    size = min(size, len(of) - 1)
    current = partitions(*(tuple(data.draw(st.permutations(sorted(of)))[:size]) for _ in range(count)))
    planned = off(0, current, of)
    others = {rack for broker_id, rack in of.items() if broker_id}
    for tp, before in current.items():
        after = planned.get(tp, before)
        assert 0 not in after
        assert len(set(after)) == size
        kept = [of[each] for each in before if each]
        if 0 in before:
            (moved,) = set(after) - set(before)
            assert of[moved] not in kept or others <= set(kept), "no host twice while there are others"
