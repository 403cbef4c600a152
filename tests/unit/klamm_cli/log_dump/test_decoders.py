"""Tests the readable form of the records in internal topics."""

from __future__ import annotations

import pytest

from klamm.consumer.assignors.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from klamm.ledger_ids import LedgerId
from klamm.model import TopicPartition
from klamm.wire.v1.metadata_pb2 import MetadataRecord, PartitionRecord
from klamm_cli.log_dump.decoders import decode_offsets, decode_transactions
from klamm_cli.log_dump.plain import plain
from klamm_coordinator.ledger.ledger import BatchLedger
from klamm_coordinator.ledger.records import LedgerRecord
from klamm_coordinator.records.codec import SchemaError
from klamm_coordinator.records.consumer_group_schemas import (
    Current,
    CurrentKey,
    MemberState,
    TopicIdPartition,
)
from klamm_coordinator.records.schemas import (
    ClassicMemberMetadata,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
    encode_value,
)
from klamm_coordinator.transaction.metadata import TransactionMetadata
from klamm_coordinator.transaction.records import TransactionRecord
from klamm_coordinator.transaction.states import TxnState
from klamm_coordinator.transaction_shard.records import encode_shard_record


def test_a_committed_offset_and_its_tombstone_are_decoded():
    key = encode_key(OffsetCommitKey("g", "orders", 3))
    value = encode_value(OffsetCommitValue(41, 2, "why", 1_000, -1))
    shown = {"type": "OffsetCommit", "group_id": "g", "topic": "orders", "partition": 3}
    decoded_key, decoded = decode_offsets(key, value)
    assert decoded_key == shown
    assert isinstance(decoded, dict)
    assert decoded.items() >= {"offset": 41, "leader_epoch": 2, "metadata": "why"}.items()
    assert decode_offsets(key, None) == (shown, None)


def member(subscription, assignment):
    return ClassicMemberMetadata(
        member_id="m",
        group_instance_id=None,
        client_id="c",
        client_host="h",
        rebalance_timeout_ms=1,
        session_timeout_ms=2,
        subscription=subscription,
        assignment=assignment,
    )


@pytest.mark.parametrize("protocol_type", ["consumer", "connect"])
def test_subscriptions_and_assignments_are_decoded_only_for_consumer_groups(protocol_type):
    subscription = encode_subscription(Subscription(topics=("orders",)))
    assignment = encode_assignment(Assignment(partitions=(TopicPartition("orders", 0),)))
    value = GroupMetadataValue(
        protocol_type=protocol_type,
        generation_id=4,
        protocol_name="range",
        leader="m",
        current_state_timestamp_ms=1,
        members=(member(subscription, assignment), member(b"\x00", b"")),
    )
    _, shown = decode_offsets(encode_key(GroupMetadataKey("g")), encode_value(value))
    first, second = shown["members"]
    if protocol_type == "consumer":
        assert first["subscription"]["topics"] == ["orders"]
        assert first["assignment"]["partitions"] == ["orders-0"]
    else:
        assert first["subscription"] == subscription.hex()
    assert second["subscription"] == "00"


def test_a_member_of_the_consumer_group_protocol_is_decoded():
    partition = TopicIdPartition(bytes(15) + b"\x01", 2)
    value = Current(
        member_epoch=3,
        previous_member_epoch=2,
        state=MemberState.STABLE,
        assigned=frozenset({partition}),
        pending_revocation=frozenset(),
    )
    key, shown = decode_offsets(encode_key(CurrentKey("g", "m")), encode_value(value))
    assert key == {"type": "Current", "group_id": "g", "member_id": "m"}
    assert shown["state"] == "STABLE"
    assert shown["assigned"] == ["AAAAAAAAAAAAAAAAAAAAAQ-2"]


def test_a_key_of_a_later_version_is_shown_as_bytes():
    assert decode_offsets(b"\x00\x63ab", b"v") == ({"type": "unknown", "version": 99, "key": "00636162"}, b"v")
    assert decode_transactions(b"\x00\x63ab", b"v") == ({"type": "unknown", "version": 99, "key": "00636162"}, b"v")


@pytest.mark.parametrize("decode", [decode_offsets, decode_transactions])
@pytest.mark.parametrize("key", [None, b"", b"\x00"])
def test_a_key_that_does_not_parse_is_refused(decode, key):
    with pytest.raises(SchemaError):
        decode(key, None)


def test_a_transaction_and_a_batch_ledger_are_decoded():
    value = TransactionMetadata(
        producer_id=7,
        producer_epoch=1,
        timeout_ms=60_000,
        state=TxnState.ONGOING,
        partitions=frozenset({TopicPartition("b", 0), TopicPartition("a", 1)}),
        start_ms=5,
        last_update_ms=6,
    )
    key, shown = decode_transactions(*encode_shard_record(TransactionRecord("tx", value)))
    assert key == {"type": "TransactionLog", "transactional_id": "tx"}
    assert (shown["state"], shown["partitions"]) == ("ONGOING", ["a-1", "b-0"])
    ledger = BatchLedger(run_id="r", fenced_run_ids=("q",), committed_batch_id=3, aborted_batch_id=-1, last_update_ms=6)
    key, shown = decode_transactions(*encode_shard_record(LedgerRecord(LedgerId("sink", "query"), ledger)))
    assert key == {"type": "BatchLedger", "sink": "sink", "query_id": "query"}
    assert shown["committed_batch_id"] == 3


def test_metadata_records_show_defaults_and_ids():
    record = MetadataRecord(partition=PartitionRecord(topic_id=bytes(16), replicas=[1, 2], isr=[1], leader=1))
    shown = plain(record.partition)
    assert shown["topic_id"] == "AAAAAAAAAAAAAAAAAAAAAA"
    assert (shown["partition"], shown["leader_epoch"], shown["elr"]) == (0, 0, [])
    assert shown["replicas"] == [1, 2]
