"""Tests which batches a leader accepts, which fields it rewrites, and that it keeps all other bytes."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from klamm.checksum import crc32c
from klamm.errors import BrokerError, ErrorCode
from klamm.records.compression import CompressionType
from klamm.records.control import ControlRecordType, end_transaction_marker
from klamm.records.decoder import decode_batch
from klamm.records.encoder import encode_batch
from klamm.records.errors import DecompressedTooLargeError, InvalidRecordError
from klamm.records.header import (
    TimestampType,
    iter_headers,
    read_header,
    set_create_time,
    set_log_append_time,
    validate_batch,
)
from klamm_broker.log.log_config import LOG_APPEND_TIME, LogConfig
from klamm_broker.log.segment import record_set
from klamm_broker.log.segment.check_budget import RECORD_NS, CheckBudget, OverBudgetError
from klamm_broker.log.segment.record_set import AppendOrigin, CheckedBatch, check_produced, with_offsets
from tests.support.in_pieces import read_in_pieces

NOW = 1_000_000


@pytest.fixture(autouse=True, params=["at once", "in pieces", "in long pieces"])
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the broker read all batches at once, or all in pieces. Each test has the same result."""
    if request.param == "in pieces":
        read_in_pieces(monkeypatch)
    elif request.param == "in long pieces":
        read_in_pieces(monkeypatch, long_record_bytes=27)


def check(records: Any, *, origin: AppendOrigin = AppendOrigin.CLIENT, **config: Any) -> list[CheckedBatch]:
    return check_produced(records, LogConfig(**config), now_ms=NOW, origin=origin)


def refused(records: Any, **config: Any) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        check(records, **config)
    return caught.value.code


def blamed(records: Any, **config: Any) -> tuple[ErrorCode, list[tuple[int, str]]]:
    """Appends the records.

    Returns the error code, and for each bad record its index and the first word of the reason.
    """
    with pytest.raises(BrokerError) as caught:
        check(records, **config)
    return caught.value.code, [(index, text.split()[0]) for index, text in caught.value.record_errors]


def with_max_timestamp(batch: bytes, max_timestamp_ms: int) -> bytearray:
    """Returns the batch as a client seals it that states this largest timestamp."""
    sealed = bytearray(batch)
    set_create_time(sealed, max_timestamp_ms)
    return sealed


def test_accepted_batches_are_the_senders_bytes(make_batch) -> None:
    first, second = make_batch(3), make_batch(2, compression=CompressionType.ZSTD)
    checked = check(bytearray(first + second))
    assert [bytes(batch.data) for batch in checked] == [first, second]


def test_offsets_and_epoch_are_assigned_without_touching_the_rest(make_batch) -> None:
    first, second = make_batch(3, timestamps=[7, 9, 8]), make_batch(2, timestamps=[1, 2])
    found = with_offsets(check(first + second), base_offset=100, leader_epoch=6)
    stored = b"".join(found.buffers)
    headers = [validate_batch(stored, position) for position, _ in iter_headers(stored)]
    assert [(h.base_offset, h.last_offset, h.partition_leader_epoch) for h in headers] == [
        (100, 102, 6),
        (103, 104, 6),
    ]
    assert (found.base_offset, found.last_offset, found.size_bytes) == (100, 104, len(stored))
    assert found.max_timestamp_ms == 9
    assert stored[16 : len(first)] == first[16:]


def test_a_damaged_or_truncated_batch_is_refused_as_corrupt_message(make_batch) -> None:
    batch = bytearray(make_batch(3))
    batch[70] ^= 1
    assert refused(batch) is ErrorCode.CORRUPT_MESSAGE
    assert refused(make_batch(3)[:-1]) is ErrorCode.CORRUPT_MESSAGE
    assert refused(make_batch(3) + b"tail") is ErrorCode.CORRUPT_MESSAGE


def test_an_empty_set_is_refused() -> None:
    assert refused(b"") is ErrorCode.INVALID_RECORD


def test_a_batch_with_an_old_magic_is_refused(make_batch) -> None:
    batch = bytearray(make_batch(1))
    batch[16] = 1
    assert refused(batch) is ErrorCode.INVALID_RECORD


def test_a_batch_whose_record_count_does_not_match_its_offsets_is_refused(make_batch) -> None:
    gaps = make_batch(2, offset_deltas=[0, 3], last_offset_delta=3)
    assert refused(gaps) is ErrorCode.INVALID_RECORD


def test_a_batch_larger_than_max_message_bytes_or_segment_bytes_is_refused(make_batch) -> None:
    batch = make_batch(1, value_bytes=500)
    assert refused(batch, max_message_bytes=len(batch) - 1) is ErrorCode.MESSAGE_TOO_LARGE
    assert len(check(batch, max_message_bytes=len(batch))) == 1
    assert refused(batch * 2, segment_bytes=2 * len(batch) - 1) is ErrorCode.RECORD_LIST_TOO_LARGE
    assert len(check(batch * 2, segment_bytes=2 * len(batch))) == 2


def test_control_batches_are_for_coordinators_only() -> None:
    marker = end_transaction_marker(
        ControlRecordType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW
    )
    assert refused(marker) is ErrorCode.INVALID_RECORD
    assert check(marker, origin=AppendOrigin.COORDINATOR)[0].header.is_control


def test_a_producer_needs_a_sequence(make_batch) -> None:
    assert refused(make_batch(1, producer_id=4, producer_epoch=0)) is ErrorCode.INVALID_RECORD
    assert check(make_batch(1, producer_id=4, producer_epoch=0, base_sequence=0))


def test_records_with_timestamps_too_far_from_now_are_refused(make_batch) -> None:
    late = make_batch(2, timestamps=[NOW, NOW + 101])
    assert refused(late, message_timestamp_after_max_ms=100) is ErrorCode.INVALID_TIMESTAMP
    assert check(late, message_timestamp_after_max_ms=101)
    early = make_batch(3, timestamps=[NOW, NOW - 101, NOW])
    assert refused(early, message_timestamp_before_max_ms=100) is ErrorCode.INVALID_TIMESTAMP
    assert check(early, message_timestamp_before_max_ms=101)
    assert check(make_batch(1, timestamps=[-1]), message_timestamp_before_max_ms=1)


def test_a_producer_that_claims_log_append_time_gets_its_own_timestamps(make_batch) -> None:
    claimed = bytearray(make_batch(3, timestamps=[1, 5, 2]))
    set_log_append_time(claimed, 9)
    [checked] = check(claimed)
    assert (checked.header.timestamp_type, checked.header.max_timestamp_ms) == (TimestampType.CREATE_TIME, 5)


def test_log_append_time_stamps_every_record(make_batch) -> None:
    sent = make_batch(3, timestamps=[1, 2, 10**15])
    (batch,) = check(sent, message_timestamp_type=LOG_APPEND_TIME)
    validate_batch(batch.data)
    assert {record.timestamp_ms for record in decode_batch(batch.data)} == {NOW}
    assert batch.header.max_timestamp_ms == NOW
    assert sent == make_batch(3, timestamps=[1, 2, 10**15])


@pytest.mark.parametrize(
    ("compression_type", "codec"),
    [
        ("uncompressed", CompressionType.NONE),
        ("gzip", CompressionType.GZIP),
        ("snappy", CompressionType.SNAPPY),
        ("lz4", CompressionType.LZ4),
        ("zstd", CompressionType.ZSTD),
    ],
)
@pytest.mark.parametrize("sent_as", [CompressionType.NONE, CompressionType.GZIP])
def test_compression_type_of_the_topic_wins(make_batch, compression_type, codec, sent_as) -> None:
    sent = make_batch(
        5,
        value_bytes=200,
        compression=sent_as,
        producer_id=9,
        producer_epoch=2,
        base_sequence=33,
        is_transactional=True,
    )
    (batch,) = check(sent, compression_type=compression_type)
    header = validate_batch(batch.data)
    assert header.compression is codec
    assert decode_batch(batch.data) == decode_batch(sent)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 33)
    assert header.is_transactional
    if sent_as is codec:
        assert bytes(batch.data) == sent


def test_max_message_bytes_applies_to_the_size_of_the_stored_batch(make_batch) -> None:
    sent = make_batch(1, value_bytes=5_000, compression=CompressionType.ZSTD)
    assert refused(sent, compression_type="uncompressed", max_message_bytes=5_000) is ErrorCode.MESSAGE_TOO_LARGE
    plain = make_batch(1, value_bytes=5_000)
    assert check(plain, compression_type="zstd", max_message_bytes=1_000)


class TestRecordErrors:
    """Tests which records of a refused batch are reported as bad (KIP-467)."""

    COMPACTED = ("compact",)
    ROWS = ((NOW, b"k"), (NOW, None), (NOW + 101, b"k"), (NOW - 101, None), (NOW - 101, b"k"), (-1, b"k"))

    def batch(self, rows: Any = ROWS, **fields: Any) -> bytes:
        return encode_batch([(timestamp_ms, key, b"v", ()) for timestamp_ms, key in rows], **fields)

    @pytest.mark.parametrize("compression", CompressionType)
    def test_all_invalid_records_are_named_with_the_error_code_of_the_worst(self, compression) -> None:
        batch = self.batch(compression=compression)
        limits = {"message_timestamp_after_max_ms": 100, "message_timestamp_before_max_ms": 100}
        assert blamed(batch, cleanup_policy=self.COMPACTED) == (ErrorCode.INVALID_RECORD, [(1, "the"), (3, "the")])
        assert blamed(batch, **limits) == (
            ErrorCode.INVALID_TIMESTAMP,
            [(2, "timestamp"), (3, "timestamp"), (4, "timestamp")],
        )
        assert blamed(batch, cleanup_policy=self.COMPACTED, **limits) == (
            ErrorCode.INVALID_TIMESTAMP,
            [(1, "the"), (2, "timestamp"), (3, "the"), (4, "timestamp")],
        )

    def test_indexes_of_invalid_records_count_over_all_batches(self) -> None:
        good = self.batch([(NOW, b"k")] * 3)
        assert blamed(good + self.batch(self.ROWS[:2]), cleanup_policy=self.COMPACTED) == (
            ErrorCode.INVALID_RECORD,
            [(4, "the")],
        )

    def test_the_message_for_invalid_records_is_one_line_with_their_number(self) -> None:
        with pytest.raises(
            BrokerError,
            match=r"^INVALID_RECORD: 2 of 6 records were refused; record 1: the record"
            r" has no key,",
        ):
            check(self.batch(), cleanup_policy=self.COMPACTED)

    def test_a_wrong_timestamp_in_the_batch_header_refuses_no_record(self) -> None:
        batch = with_max_timestamp(self.batch([(NOW, b"k")]), NOW + 101)
        [checked] = check(batch, message_timestamp_after_max_ms=100)
        assert checked.header.max_timestamp_ms == NOW

    def test_a_header_does_not_hide_a_record_that_is_too_new(self) -> None:
        batch = with_max_timestamp(self.batch([(NOW, b"k"), (NOW + 101, b"k")]), NOW)
        assert blamed(batch, message_timestamp_after_max_ms=100) == (
            ErrorCode.INVALID_TIMESTAMP,
            [(1, "timestamp")],
        )

    def test_at_most_a_thousand_invalid_records_are_named(self) -> None:
        code, errors = blamed(self.batch([(NOW, None)] * 1_500), cleanup_policy=self.COMPACTED)
        assert (code, [index for index, _ in errors]) == (ErrorCode.INVALID_RECORD, list(range(1_000)))

    def test_a_batch_that_is_too_large_is_refused_without_naming_records(self) -> None:
        assert blamed(self.batch([(NOW, b"k" * 100)]), max_message_bytes=10) == (ErrorCode.MESSAGE_TOO_LARGE, [])


class TestLargestTimestamp:
    """The header of a stored batch has the largest timestamp of its records, whatever the client wrote there."""

    @pytest.mark.parametrize("wrong", [-1, 0, NOW, NOW + 1, NOW + 10**12])
    @pytest.mark.parametrize("compression", CompressionType)
    def test_a_wrong_one_is_corrected(self, make_batch, compression, wrong) -> None:
        batch = make_batch(40, compression=compression, timestamps=[NOW + number % 7 for number in range(40)])
        assert read_header(batch).max_timestamp_ms == NOW + 6
        [checked] = check(with_max_timestamp(batch, wrong), message_timestamp_after_max_ms=10)
        assert bytes(checked.data) == batch
        assert checked.header == validate_batch(checked.data)

    def test_it_is_written_into_the_indexes_and_the_answer_of_a_set(self, make_batch) -> None:
        batch = make_batch(2, timestamps=[NOW, NOW + 3])
        found = with_offsets(check(with_max_timestamp(batch, -1)), base_offset=5, leader_epoch=1)
        assert found.max_timestamp_ms == found.batches[0].max_timestamp_ms == NOW + 3

    def test_records_without_timestamp_keep_none(self, make_batch) -> None:
        [checked] = check(with_max_timestamp(make_batch(2, timestamps=[-1, -1]), NOW))
        assert checked.header.max_timestamp_ms == -1

    def test_a_count_that_is_not_that_of_the_records_is_refused(self, make_batch) -> None:
        batch = bytearray(make_batch(3))
        struct.pack_into(">i", batch, 23, 3)
        struct.pack_into(">i", batch, 57, 4)
        struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
        assert refused(batch) is ErrorCode.INVALID_RECORD

    def test_the_topics_compression_keeps_it(self, make_batch) -> None:
        batch = make_batch(2, timestamps=[NOW, NOW + 3])
        [checked] = check(with_max_timestamp(batch, -1), compression_type="zstd")
        assert checked.header.compression is CompressionType.ZSTD
        assert checked.header.max_timestamp_ms == NOW + 3
        assert decode_batch(checked.data) == decode_batch(batch)


class TestBudget:
    def check(self, batch: Any, left_ns: int, **config: Any) -> CheckBudget:
        budget = CheckBudget(left_ns)
        check_produced(batch, LogConfig(**config), now_ms=NOW, origin=AppendOrigin.CLIENT, budget=budget)
        return budget

    def test_a_few_records_fit(self, make_batch) -> None:
        assert 0 < self.check(make_batch(3, compression=CompressionType.GZIP), 5_000_000).left_ns < 5_000_000

    @pytest.mark.parametrize("config", [{}, {"cleanup_policy": ("compact",)}, {"compression_type": "gzip"}])
    @pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.ZSTD])
    def test_too_many_records_are_refused_before_they_are_read(self, make_batch, compression, config) -> None:
        batch = make_batch(1_000, compression=compression)
        with pytest.raises(OverBudgetError):
            self.check(batch, 50_000, **config)

    def test_a_batch_that_becomes_too_large_is_refused_while_it_is_decompressed(self) -> None:
        batch = encode_batch([(NOW, b"k", bytes(1_000_000), ())], compression=CompressionType.ZSTD)
        with pytest.raises(OverBudgetError):
            self.check(batch, 900_000)

    def test_a_batch_with_a_limit_for_each_record_costs_more(self) -> None:
        batch = encode_batch([(NOW, b"k", b"v", ())] * 100, compression=CompressionType.ZSTD)
        unlimited = self.check(batch, 5_000_000).left_ns
        assert unlimited - self.check(batch, 5_000_000, max_decompressed_message_bytes=100).left_ns == 100 * RECORD_NS

    def test_batches_of_one_set_share_it(self, make_batch) -> None:
        self.check(make_batch(30), 4_000)
        with pytest.raises(OverBudgetError):
            self.check(make_batch(30) + make_batch(30), 4_000)

    def test_nothing_is_read_with_the_brokers_timestamps(self, make_batch) -> None:
        assert self.check(make_batch(30), 0, message_timestamp_type=LOG_APPEND_TIME).left_ns == 0


class TestDecompressedSize:
    """`max.decompressed.message.bytes` limits each record of a compressed batch, as in Kafka."""

    @pytest.mark.parametrize("compression", CompressionType)
    @pytest.mark.parametrize(
        "config",
        [
            {},
            {"compression_type": "gzip"},
            {"cleanup_policy": ("compact",)},
            {"message_timestamp_type": LOG_APPEND_TIME},
        ],
    )
    def test_a_record_above_the_topics_limit_is_refused(self, compression, config) -> None:
        batch = encode_batch([(NOW, b"k", b"v", ()), (NOW, b"k", bytes(1_000), ())], compression=compression)
        record_bytes = 1_000 + 8
        assert len(check(batch, max_decompressed_message_bytes=record_bytes, **config)) == 1
        limited = {"max_decompressed_message_bytes": record_bytes - 1, **config}
        if compression is CompressionType.NONE:
            assert len(check(batch, **limited)) == 1
            return
        with pytest.raises(InvalidRecordError, match=r"has 1008 bytes .* max\.decompressed\.message\.bytes=1007"):
            check(batch, **limited)

    def test_records_that_nobody_could_read_are_refused(self, monkeypatch) -> None:
        record_bytes = vars(record_set)["WHOLE_BYTES_MAX"] + 10_000
        batch = encode_batch([(NOW, b"k", bytes(record_bytes), ())] * 2, compression=CompressionType.ZSTD)
        assert len(check(batch)) == 1
        monkeypatch.setattr(record_set, "MAX_DECOMPRESSED_BYTES", 2 * record_bytes)
        with pytest.raises(DecompressedTooLargeError, match=f"exceed {2 * record_bytes} bytes"):
            check(batch)


class TestCompactedTopics:
    POLICY = ("delete", "compact")

    @pytest.mark.parametrize("compression", CompressionType)
    def test_every_record_of_a_compacted_topic_needs_a_key(self, compression) -> None:
        rows = [(1_000, b"k", b"v", ()), (1_000, None, b"v", ())]
        batch = encode_batch(rows, compression=compression)
        assert refused(batch, cleanup_policy=self.POLICY) is ErrorCode.INVALID_RECORD
        assert len(check(batch)) == 1, "only where it is compacted"
        keyed = encode_batch([(1_000, b"", None, ()), (1_000, b"k", b"v", ())], compression=compression)
        assert bytes(check(keyed, cleanup_policy=self.POLICY)[0].data) == keyed

    def test_a_batch_that_compaction_could_not_read_is_refused(self) -> None:
        """Compaction could never clean a partition with such a batch."""
        batch = bytearray(encode_batch([(1_000, b"key", b"value", ())] * 3))
        batch[61] += 2
        set_log_append_time(batch, NOW)  # so that the checksum fits
        config = {"message_timestamp_type": LOG_APPEND_TIME}
        assert len(check(batch, **config)) == 1
        assert refused(batch, cleanup_policy=self.POLICY, **config) is ErrorCode.INVALID_RECORD

    def test_a_batch_with_repeated_offsets_is_refused_in_a_compacted_topic(self) -> None:
        rows = [(1_000, b"k", b"v", ())] * 3
        batch = encode_batch(rows, offset_deltas=[0, 1, 1], last_offset_delta=2)
        assert refused(batch, cleanup_policy=self.POLICY) is ErrorCode.INVALID_RECORD

    def test_a_transaction_marker_is_accepted_in_a_compacted_topic(self) -> None:
        marker = end_transaction_marker(
            ControlRecordType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW
        )
        assert len(check(marker, origin=AppendOrigin.COORDINATOR, cleanup_policy=self.POLICY)) == 1
