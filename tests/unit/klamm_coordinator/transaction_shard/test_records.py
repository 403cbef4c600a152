"""Tests the records of `__transaction_state`: Kafka's bytes, written and read."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.model import TopicPartition
from klamm_coordinator.records.codec import SchemaError
from klamm_coordinator.transaction.metadata import TransactionMetadata
from klamm_coordinator.transaction.records import TransactionRecord
from klamm_coordinator.transaction.states import TxnState
from klamm_coordinator.transaction_shard.records import decode_shard_record, encode_shard_record

# The fields follow Kafka's TransactionLogValue.json. Version 0 is classic, 1 flexible with tagged fields.
KEY = bytes.fromhex("0000000178")
VALUE_0 = bytes.fromhex(
    "0000"  # version
    "0000000000000007" "0003"  # producer id, epoch
    "0000ea60" "01"  # timeout, Ongoing
    "00000001" "0001" "74" "00000002" "00000000" "00000005"  # t: 0 and 5
    "0000000000000064" "0000000000000032"  # last update, start
)  # fmt: skip
VALUE_1 = bytes.fromhex(
    "0001"
    "0000000000000007" "0003"
    "0000ea60" "01"
    "02" "02" "74" "03" "00000000" "00000005" "00"
    "0000000000000064" "0000000000000032"
    "02"  # two tagged fields
    "00" "08" "0000000000000006"  # previous producer id
    "02" "02" "0002"  # client transaction version
)  # fmt: skip


def ongoing(**fields) -> TransactionMetadata:
    return TransactionMetadata(
        producer_id=7,
        producer_epoch=3,
        timeout_ms=60_000,
        state=TxnState.ONGOING,
        partitions=frozenset({TopicPartition("t", 0), TopicPartition("t", 5)}),
        start_ms=50,
        last_update_ms=100,
        **fields,
    )


def test_version_0_is_read():
    assert decode_shard_record(KEY, VALUE_0) == ("x", ongoing(transaction_version=0))


def test_version_1_is_read_and_written():
    record = TransactionRecord("x", ongoing(previous_producer_id=6))
    assert encode_shard_record(record) == (KEY, VALUE_1)
    assert decode_shard_record(KEY, VALUE_1) == record


def test_fields_that_only_klamm_has_are_tagged_fields():
    _, value = encode_shard_record(TransactionRecord("x", ongoing(previous_producer_id=6, last_producer_epoch=2)))
    assert value is not None
    assert value.endswith(bytes.fromhex("904e" "02" "0002"))  # fmt: skip


def test_a_tombstone_deletes():
    record = TransactionRecord("x", None)
    assert encode_shard_record(record) == (KEY, None)
    assert decode_shard_record(KEY, None) == record


def test_keys_of_other_versions_are_skipped():
    assert decode_shard_record(b"\x00\x01" + KEY[2:], VALUE_1) is None


@pytest.mark.parametrize(
    "value",
    [
        b"\x00\x02" + VALUE_1[2:],
        VALUE_1[:16] + b"\x06" + VALUE_1[17:],
        VALUE_1[:-1],
        VALUE_0[:-1],
        VALUE_1[:17] + b"\x7f" + VALUE_1[18:],
    ],
    ids=["version", "state", "end", "end of version 0", "count"],
)
def test_a_damaged_transaction_record_raises_a_schema_error(value):
    with pytest.raises(SchemaError):
        decode_shard_record(KEY, value)


VALUES = st.builds(
    TransactionMetadata,
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
    last_producer_epoch=st.integers(-1, 2**15 - 1),
    previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1),
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from([state for state in TxnState if state is not TxnState.EMPTY]),
    partitions=st.frozensets(
        st.builds(TopicPartition, st.text("äb", min_size=1, max_size=200), st.integers(0, 2**31 - 1)), max_size=20
    ),
    start_ms=st.integers(-1, 2**62),
    last_update_ms=st.integers(0, 2**62),
    transaction_version=st.sampled_from([0, 2]),
)


@given(st.text(min_size=1, max_size=50), VALUES)
@settings(deadline=None)
def test_a_transaction_record_round_trips(transactional_id, value):
    record = TransactionRecord(transactional_id, value)
    assert decode_shard_record(*encode_shard_record(record)) == record


@given(st.binary(max_size=120))
@settings(deadline=None)
def test_arbitrary_bytes_are_a_record_or_an_error(data):
    for value in (data, b"\x00\x01" + data):
        try:
            decode_shard_record(KEY, value)
        except SchemaError:
            continue
