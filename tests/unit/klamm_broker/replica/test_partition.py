"""What a leader counts as committed, and whom it refuses."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_steps import create_log

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import TopicId, TopicPartition
from klamm.records.encoder import encode_batch
from klamm.records.errors import CorruptBatchError
from klamm_broker.log.disk import Disk
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.log_manager import LogManager, LogManagerConfig
from klamm_broker.replica.partition import Partition, committed_offset
from klamm_server.metadata.image import PartitionImage

NAME = TopicPartition("flights", 0)
MakePartition = Callable[..., Partition]


@pytest.fixture
def make_partition(tmp_path: Path) -> MakePartition:
    """A replica on broker 1 over a real log."""

    def make(**config: int) -> Partition:
        manager_config = LogManagerConfig(log_dirs=(str(tmp_path),), cluster_id="c", node_id=1)
        logs = LogManager(manager_config, Disk(), random.Random(0))
        log = create_log(logs, NAME, TopicId(uuid.uuid4()), LogConfig(**config))
        return Partition(NAME, log, broker_id=1, high_watermark=0)

    return make


def image(
    *, leader: int = 1, leader_epoch: int = 0, isr: tuple[int, ...] = (1,), replicas: tuple[int, ...] = (1, 2, 3)
) -> PartitionImage:
    return PartitionImage(
        partition=0, replicas=replicas, isr=isr, leader=leader, leader_epoch=leader_epoch, partition_epoch=0
    )


def append(partition: Partition, count: int) -> int:
    """Appends a batch of `count` records; returns its size."""
    records = batch(count)
    partition.append(records, now_ms=0)
    return len(records)


def batch(count: int, *, producer: tuple[int, int, int] = (-1, -1, -1)) -> memoryview:
    """`producer` is (id, epoch, base sequence)."""
    producer_id, producer_epoch, base_sequence = producer
    records = encode_batch(
        [(0, None, b"v", ())] * count,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return memoryview(records)


def test_alone_in_sync_everything_appended_is_committed(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image())
    size = append(partition, 3)
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 3)
    assert partition.readable_bytes_total == size


def test_the_slowest_replica_in_sync_holds_the_high_watermark(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(isr=(1, 2, 3)))
    append(partition, 5)
    assert partition.high_watermark == 0
    assert not partition.on_follower_end_offset(2, 5)
    assert partition.on_follower_end_offset(3, 4)
    assert partition.high_watermark == 4
    partition.apply(image(isr=(1, 2)))
    assert partition.high_watermark == 5


def test_the_high_watermark_does_not_go_back_when_the_isr_grows(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(isr=(1,)))
    append(partition, 5)
    partition.apply(image(isr=(1, 2)))
    assert partition.high_watermark == 5
    append(partition, 1)
    assert partition.high_watermark == 5


def test_what_followers_reported_to_an_earlier_leadership_does_not_count(make_partition: MakePartition) -> None:
    """The follower may have been truncated since."""
    partition = make_partition()
    partition.apply(image(isr=(1, 2)))
    append(partition, 2)
    partition.on_follower_end_offset(2, 2)
    partition.apply(image(leader=2, leader_epoch=1, isr=(1, 2)))
    partition.apply(image(leader=1, leader_epoch=2, isr=(1, 2)))
    append(partition, 2)
    assert partition.high_watermark == 2


def test_bytes_become_readable_with_the_high_watermark(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(isr=(1, 2)))
    size = append(partition, 1) + append(partition, 2)
    assert partition.readable_bytes_total == 0
    partition.on_follower_end_offset(2, 3)
    assert partition.readable_bytes_total == size


def test_epochs_and_leadership_are_checked(make_partition: MakePartition) -> None:
    partition = make_partition()
    with pytest.raises(EXCEPTIONS[ErrorCode.NOT_LEADER_OR_FOLLOWER]):
        partition.check_leader()
    partition.apply(image(leader_epoch=4))
    partition.check_leader()
    partition.check_leader(4)
    with pytest.raises(EXCEPTIONS[ErrorCode.FENCED_LEADER_EPOCH], match="leader epoch 3; here it is 4"):
        partition.check_leader(3)
    with pytest.raises(EXCEPTIONS[ErrorCode.UNKNOWN_LEADER_EPOCH]):
        partition.check_leader(5)
    partition.resign()
    with pytest.raises(EXCEPTIONS[ErrorCode.NOT_LEADER_OR_FOLLOWER]):
        partition.check_leader(4)


def test_metadata_never_go_back(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image(leader_epoch=4))
    with pytest.raises(AssertionError):
        partition.apply(image(leader_epoch=3))


def test_min_insync_replicas(make_partition: MakePartition) -> None:
    partition = make_partition(min_insync_replicas=2)
    partition.apply(image(isr=(1,)))
    with pytest.raises(EXCEPTIONS[ErrorCode.NOT_ENOUGH_REPLICAS], match=r"min\.insync\.replicas is 2"):
        partition.check_min_isr()
    partition.apply(image(isr=(1, 3)))
    partition.check_min_isr()


def test_an_idempotent_batch_sent_again_is_not_appended_again(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image())
    first, _ = partition.append(batch(3, producer=(9, 0, 0)), now_ms=0)
    partition.append(batch(1, producer=(9, 0, 3)), now_ms=0)
    again, moved = partition.append(batch(3, producer=(9, 0, 0)), now_ms=0)
    assert (again.base_offset, again.last_offset, moved) == (first.base_offset, first.last_offset, False)
    assert partition.log.log_end_offset == 4


def test_an_older_owner_is_fenced_also_after_the_leadership_came_back(make_partition: MakePartition) -> None:
    """What the leader remembers of producers is what the log says."""
    partition = make_partition()
    partition.apply(image())
    partition.append(batch(2, producer=(9, 5, 0)), now_ms=0)
    partition.apply(image(leader=2, leader_epoch=1, isr=(1, 2)))
    partition.apply(image(leader=1, leader_epoch=2, isr=(1,)))
    with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_PRODUCER_EPOCH]):
        partition.append(batch(1, producer=(9, 4, 0)), now_ms=0)
    with pytest.raises(EXCEPTIONS[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER], match="sequence 7; expected 2"):
        partition.append(batch(1, producer=(9, 5, 7)), now_ms=0)
    again, _ = partition.append(batch(2, producer=(9, 5, 0)), now_ms=0)
    assert again.base_offset == 0
    partition.append(batch(1, producer=(9, 5, 2)), now_ms=0)
    assert partition.log.log_end_offset == 3


def test_a_refused_append_leaves_no_trace_of_its_producer(make_partition: MakePartition) -> None:
    partition = make_partition(max_message_bytes=100)
    partition.apply(image())
    with pytest.raises(EXCEPTIONS[ErrorCode.MESSAGE_TOO_LARGE]):
        partition.append(batch(50, producer=(9, 0, 0)), now_ms=0)
    partition.append(batch(1, producer=(9, 0, 0)), now_ms=0)
    assert partition.log.log_end_offset == 1


@pytest.mark.parametrize("damage", ["an older epoch", "a duplicate"])
def test_what_a_damaged_header_says_of_its_producer_is_not_believed(make_partition: MakePartition, damage: str) -> None:
    partition = make_partition()
    partition.apply(image())
    partition.append(batch(1, producer=(7, 3, 0)), now_ms=0)
    partition.append(batch(1, producer=(7, 3, 1)), now_ms=0)
    damaged = bytearray(batch(1, producer=(7, 3, 2)))
    if damage == "an older epoch":
        damaged[51:53] = (2).to_bytes(2, "big")
    else:
        damaged[53:57] = (1).to_bytes(4, "big")
    with pytest.raises(CorruptBatchError):
        partition.append(memoryview(damaged), now_ms=0)
    assert partition.append(batch(1, producer=(7, 3, 2)), now_ms=0)[0].base_offset == 2


def test_several_batches_with_a_producer_id_are_refused(make_partition: MakePartition) -> None:
    partition = make_partition()
    partition.apply(image())
    two = memoryview(bytes(batch(1, producer=(9, 0, 0))) + bytes(batch(1)))
    with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_RECORD]):
        partition.append(two, now_ms=0)


@given(
    end_offset=st.integers(0, 100),
    reported=st.dictionaries(st.integers(2, 6), st.integers(0, 100)),
    isr=st.sets(st.integers(2, 6)),
)
def test_committed_is_the_largest_offset_that_all_in_sync_have(
    end_offset: int, reported: dict[int, int], isr: set[int]
) -> None:
    def everybody_has(offset: int) -> bool:
        return offset <= end_offset and all(offset <= reported.get(replica, 0) for replica in isr)

    committed = committed_offset(end_offset, sorted(isr), reported)
    assert everybody_has(committed)
    assert not everybody_has(committed + 1)
