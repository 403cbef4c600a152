"""The Producer splits batches that are too large for the broker, and refuses records that are too large."""

from __future__ import annotations

import pytest

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.records import HEADER_SIZE_BYTES, PackedRecords, encode_batch
from tests.support.scripted_broker import ScriptedCluster
from tests.support.scripted_producer import numbered, producing
from tests.support.waiting import patience

MessageTooLargeError = EXCEPTIONS[ErrorCode.MESSAGE_TOO_LARGE]


def test_too_large_batches_are_split_until_they_fit() -> None:
    cluster = ScriptedCluster()
    cluster.max_message_bytes = 1_000
    with producing(cluster=cluster, linger_ms=20) as (producer, _):
        futures = [producer.send("t", value) for value in numbered(1_000)]

        assert [future.result(patience()).offset for future in futures] == list(range(1_000))
        assert cluster.values("t") == numbered(1_000)
        assert producer.metrics()["batch-split-total"] > 1


def packed(values: list[bytes]) -> PackedRecords:
    """Returns records in the encoding of a caller that has columns."""
    batch = encode_batch([(77, None, value, ()) for value in values])
    return PackedRecords(
        data=batch[HEADER_SIZE_BYTES:], record_count=len(values), base_timestamp_ms=77, max_timestamp_ms=77
    )


def test_encoded_records_and_other_records_are_written_in_order() -> None:
    with producing(2, linger_ms=60_000) as (producer, cluster):
        producer.send("t", b"before", partition=1)
        future = producer.send_packed("t", packed(numbered(100)), partition=1)
        future.result(patience())
        assert cluster.values("t", 1) == [b"before", *numbered(100)]
        producer.send_packed("t", packed([b"anywhere"])).result(patience())
        assert len([*cluster.values("t", 0), *cluster.values("t", 1)]) == 102


def test_an_encoded_batch_above_the_brokers_limit_is_split() -> None:
    cluster = ScriptedCluster()
    cluster.max_message_bytes = 1_000
    with producing(cluster=cluster) as (producer, _):
        producer.send_packed("t", packed(numbered(1_000))).result(patience())
        assert cluster.values("t") == numbered(1_000)
        with pytest.raises(MessageTooLargeError):
            producer.send_packed("t", packed([b"a", b"b" * 2_000, b"c"])).result(patience())


def test_encoded_records_wait_for_memory_and_fail_above_max_request_size() -> None:
    with producing(buffer_memory=20_000, batch_size=1_000, max_request_size=10_000) as (producer, cluster):
        futures = [producer.send_packed("t", packed([b"x" * 9_000])) for _ in range(10)]
        for future in futures:
            future.result(patience())
        assert cluster.values("t") == [b"x" * 9_000] * 10
        with pytest.raises(MessageTooLargeError, match=r"2 record\(s\) .*max\.request\.size allows 10000"):
            producer.send_packed("t", packed([b"x" * 9_000] * 2))


def test_only_a_record_that_is_too_large_by_itself_fails() -> None:
    cluster = ScriptedCluster()
    cluster.max_message_bytes = 1_000
    outcomes: list[str] = []
    with producing(cluster=cluster, linger_ms=20) as (producer, _):
        contents = [b"a", b"b" * 2_000, b"c"]
        for content in contents:
            producer.send(
                "t",
                content,
                on_delivery=lambda metadata, error: outcomes.append(str(error or metadata)),
            )
        producer.flush(patience())

        assert cluster.values("t") == [b"a", b"c"]
        assert len(outcomes) == 3
        assert outcomes[1].startswith("MESSAGE_TOO_LARGE")


def test_record_above_max_request_size_is_refused_before_it_is_buffered() -> None:
    with producing(max_request_size=1_000) as (producer, cluster):
        with pytest.raises(MessageTooLargeError, match=r"max\.request\.size allows 1000"):
            producer.send("t", b"x" * 1_000)
        producer.flush(patience())
        assert cluster.produced == []
