"""Tests that loading a shard from the bytes of its log gives the state that wrote them."""

from __future__ import annotations

import random

import pytest

from klamm.model import TopicPartition
from klamm.records import CompressionType, ControlRecordType, encode_batch, end_transaction_marker, iter_headers
from klamm_coordinator.group_shard.replayer import GroupReplayer
from klamm_coordinator.group_shard.state import GroupShardState
from klamm_coordinator.records.codec import SchemaError
from klamm_coordinator.records.schemas import OffsetCommitKey, OffsetCommitValue, encode_key, encode_value


def load(*batches: bytes) -> tuple[GroupShardState, GroupReplayer]:
    state = GroupShardState()
    replayer = GroupReplayer(state)
    log = b"".join(batches)
    for position, header in iter_headers(log):
        replayer.replay_batch(log, position, header)
    return state, replayer


@pytest.mark.parametrize("compression", list(CompressionType))
def test_a_replayed_log_gives_the_written_state(driver, compression):
    rng = random.Random(5)
    members = driver.stable(2, instances=("worker-1",))
    for number in range(300):
        group_id, topic = f"g{rng.randrange(5)}", f"t{rng.randrange(3)}"
        driver.commit(number, group_id=group_id, topic=topic, partition=rng.randrange(4), metadata="ü" * (number % 3))
    driver.delete_offsets(*(("t0", partition) for partition in range(4)), group_id="g1")
    driver.delete_groups("g2")
    driver.leave((members[0], None))
    raw = [(0, encode_key(record.key), encode_value(record.value), ()) for record in driver.log]

    batches = [
        encode_batch(raw[start : start + 7], base_offset=start, compression=compression)
        for start in range(0, len(raw), 7)
    ]
    state, replayer = load(*batches)

    assert state == driver.rules.state
    assert state.offsets.count() > 20
    assert state.groups.keys() == {"orders"}
    assert replayer.skipped_count == 0


def test_unknown_records_are_skipped_and_counted():
    unknown = [(0, b"\x00\x0b" + b"a later kafka", b"?", ()), (0, None, b"no key", ())]

    state, replayer = load(encode_batch(unknown))

    assert (state, replayer.skipped_count) == (GroupShardState(), 2)


def test_control_records_of_other_types_are_ignored():
    state, replayer = load(encode_batch([(0, b"\x00\x00\x00\x02", b"\x00\x00", ())], is_control=True))

    assert (state, replayer.skipped_count) == (GroupShardState(), 0)


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"\x00\x01\x00\x05g", b""), (b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00", b"\x00\x03"), (b"\x00\x02", b"")],
)
def test_a_damaged_record_is_refused(key, value):
    with pytest.raises(SchemaError):
        load(encode_batch([(0, key, value, ())]))


@pytest.mark.parametrize("committed", [True, False])
def test_offsets_of_a_transaction_are_pending_until_its_marker(committed):
    key, value = encode_key(OffsetCommitKey("g", "t", 1)), encode_value(OffsetCommitValue(42, 7, "", 0))
    offsets = encode_batch([(0, key, value, ())], producer_id=9, producer_epoch=3, is_transactional=True)
    marker = end_transaction_marker(
        ControlRecordType.COMMIT if committed else ControlRecordType.ABORT,
        producer_id=9,
        producer_epoch=4,
        coordinator_epoch=0,
        timestamp_ms=0,
    )

    open_state, _ = load(offsets)
    state, _ = load(offsets, marker)

    assert open_state.offsets.pending.partitions("g") == {TopicPartition("t", 1)}
    assert not open_state.offsets.of_group("g")
    assert not state.offsets.pending.partitions("g")
    assert TopicPartition("t", 1) in state.offsets.of_group("g") if committed else state == GroupShardState()


def test_a_batch_of_the_shard_owner_is_not_transactional():
    key, value = encode_key(OffsetCommitKey("g", "t", 1)), encode_value(OffsetCommitValue(42, 7, "", 0))

    state, _ = load(encode_batch([(0, key, value, ())], producer_id=9, producer_epoch=3, base_sequence=0))

    assert TopicPartition("t", 1) in state.offsets.of_group("g")
