"""Tests that a cleaning keeps the last record of each key, and that the log may change while a thread cleans it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from klamm.records import (
    CompressionType,
    ControlRecordType,
    CorruptBatchError,
    assign_offset,
    decode_batch,
    encode_batch,
    end_transaction_marker,
    read_header,
    set_log_append_time,
)
from klamm_broker.log.cleaning.log_cleaning import LogCleaning
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_server.runtime.disk import Disk
from tests.support.cleaning_steps import DAY_MS, compact
from tests.support.compacted_log import CONFIG, NOW, append, batches, pairs, seal
from tests.support.in_pieces import read_in_pieces


@pytest.fixture(autouse=True, params=["at once", "in pieces", "in long pieces"])
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the broker read all batches at once, or all in pieces. Each test has the same result."""
    if request.param == "in pieces":
        read_in_pieces(monkeypatch)
    elif request.param == "in long pieces":
        read_in_pieces(monkeypatch, long_record_bytes=27)


@pytest.fixture
def log(harness) -> PartitionLog:
    harness.config = CONFIG
    return harness.open(now_ms=NOW)


def test_a_cleaning_keeps_the_last_record_of_each_key_at_its_offset(log) -> None:
    append(log, [(b"a", b"1"), (b"b", b"1"), (b"a", b"2")])
    append(log, [(b"c", b"1"), (b"b", b"2")], roll=True)
    append(log, [(b"a", b"3")])
    stats = compact(log)
    assert pairs(log) == [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2"), (5, b"a", b"3")]
    assert (stats.key_count, stats.read_records, stats.written_records) == (3, 5, 3)
    assert log.compaction.cleaned_to_offset == 5
    log.check_invariants()


def test_a_cleaning_neither_changes_nor_reads_the_active_segment(log) -> None:
    append(log, [(b"a", b"1")], roll=True)
    append(log, [(b"a", b"2"), (b"a", b"3")])
    compact(log)
    assert [offset for offset, _, _ in pairs(log)] == [0, 1, 2]


@pytest.mark.parametrize("stable", [0, 1, 2])
def test_only_whole_segments_below_the_last_stable_offset_are_cleaned(log, stable) -> None:
    append(log, [(b"a", b"1"), (b"a", b"2")], roll=True)
    append(log, [(b"a", b"3")], roll=True)
    compact(log, last_stable_offset=stable)
    assert log.compaction.cleaned_to_offset == (2 if stable == 2 else 0)
    assert [offset for offset, _, _ in pairs(log)] == ([1, 2] if stable == 2 else [0, 1, 2])


def test_only_flushed_segments_are_cleaned(log) -> None:
    append(log, [(b"a", b"1"), (b"a", b"2")])
    log.segments.roll(log.log_end_offset, NOW)
    compact(log)
    assert log.compaction.cleaned_to_offset == 0
    log.flusher.flush()
    compact(log)
    assert log.compaction.cleaned_to_offset == 2


def test_a_batch_that_loses_no_record_keeps_its_bytes(log) -> None:
    append(log, [(b"a", b"1")], compression=CompressionType.ZSTD, producer_id=5, producer_epoch=1, base_sequence=0)
    append(log, [(b"b", b"1"), (b"b", b"2")], roll=True)
    before = batches(log)
    compact(log)
    after = batches(log)
    assert after[0] == before[0]
    assert after[1] != before[1]
    fields = read_header(after[1])._asdict()
    kept = {"base_offset": 1, "last_offset_delta": 1, "record_count": 1}
    assert {name: fields[name] for name in kept} == kept


def test_segments_without_anything_to_remove_stay_the_same_files(log, harness) -> None:
    append(log, [(b"a", b"1")], roll=True)
    inode = harness.path(0).stat().st_ino
    compact(log)
    assert harness.path(0).stat().st_ino == inode
    assert log.compaction.cleaned_to_offset == 1
    assert not [name for name in os.listdir(harness.directory) if "cleaned" in name]


@pytest.mark.parametrize("compression", CompressionType)
def test_a_batch_that_loses_records_keeps_its_fields(log, compression) -> None:
    rows = [(NOW + at, b"k%d" % (at % 3), b"v%d" % at, (("h", b"x"),) if at % 2 else ()) for at in range(9)]
    batch = encode_batch(rows, compression=compression, producer_id=4, producer_epoch=2, base_sequence=0)
    log.append_as_leader(batch, leader_epoch=3, now_ms=NOW)
    seal(log)
    expected = decode_batch(batches(log)[0])[6:]
    compact(log)
    (found,) = batches(log)
    header = read_header(found)
    assert decode_batch(found) == expected
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (0, 8, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (4, 2, 0, 8)
    assert (header.compression, header.max_timestamp_ms, header.record_count) == (compression, NOW + 8, 3)


def test_the_largest_timestamp_is_that_of_a_record_that_is_left(log) -> None:
    append(log, [(b"a", b"1")], now_ms=NOW)
    rows = [(NOW + 50, b"b", b"1", ()), (NOW + 10, b"c", b"1", ())]
    log.append_as_leader(encode_batch(rows), leader_epoch=0, now_ms=NOW)
    append(log, [(b"b", b"2")], now_ms=NOW + 20, roll=True)
    compact(log)
    assert [read_header(batch).max_timestamp_ms for batch in batches(log)] == [NOW, NOW + 10, NOW + 20]
    newest = log.reader.find_max_timestamp()
    assert newest is not None
    assert newest[:2] == (NOW + 20, 3)


def test_records_with_log_append_time_keep_it_after_a_cleaning(log) -> None:
    batch = bytearray(encode_batch([(1, b"a", b"1", ()), (2, b"a", b"2", ()), (3, b"b", None, ())]))
    set_log_append_time(batch, NOW)
    log.append_as_follower(batch, leader_epoch=9, now_ms=NOW)
    seal(log)
    compact(log, now_ms=NOW)
    assert [record.timestamp_ms for record in decode_batch(batches(log)[0])] == [NOW, NOW]


class TestTombstones:
    def test_tombstones_stay_until_delete_retention_ms_is_over(self, log) -> None:
        append(log, [(b"a", b"1"), (b"b", b"1")])
        append(log, [(b"a", None), (b"c", b"1")], roll=True)
        compact(log, now_ms=NOW)
        assert pairs(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
        (_, marked) = batches(log)
        assert read_header(marked).delete_horizon_ms == NOW + 5_000
        assert [record.timestamp_ms for record in decode_batch(marked)] == [NOW, NOW]
        compact(log, now_ms=NOW + 4_999)
        assert batches(log)[1] == marked, "the horizon was set once and for all"
        compact(log, now_ms=NOW + 5_000)
        assert pairs(log) == [(1, b"b", b"1"), (3, b"c", b"1")]

    def test_a_new_tombstone_for_a_key_has_its_own_delete_horizon(self, log) -> None:
        append(log, [(b"a", None)], roll=True)
        compact(log, now_ms=NOW)
        append(log, [(b"a", b"1"), (b"a", None)], roll=True)
        compact(log, now_ms=NOW + 6_000)
        assert pairs(log) == [(2, b"a", None)]
        compact(log, now_ms=NOW + 10_999)
        assert pairs(log) == [(2, b"a", None)]
        compact(log, now_ms=NOW + 11_000)
        assert pairs(log) == []

    def test_a_tombstone_with_the_leaders_horizon_also_deletes_the_value_on_a_follower(self, log) -> None:
        """A follower may get a tombstone with its horizon, while the deleted value is still in its log."""
        append(log, [(b"a", b"1")], roll=True)
        append(log, [(b"a", None), (b"b", b"1")], roll=True)
        compact(log, now_ms=NOW)
        marked = batches(log)[-1]
        log.truncate_fully_and_start_at(0, now_ms=NOW)
        append(log, [(b"a", b"1")])
        log.append_as_follower(marked, leader_epoch=9, now_ms=NOW)
        seal(log)
        compact(log, now_ms=NOW + 5_000)
        assert pairs(log) == [(2, b"b", b"1")]

    @pytest.mark.parametrize("retention_ms", [0, 2**63 - 1])
    def test_tombstones_go_at_once_with_a_delete_retention_of_zero_and_stay_with_the_longest(
        self, log, retention_ms
    ) -> None:
        log.config = replace(CONFIG, delete_retention_ms=retention_ms)
        append(log, [(b"a", None), (b"b", b"1")], roll=True)
        compact(log, now_ms=NOW)
        assert [record.timestamp_ms for record in decode_batch(batches(log)[0])] == [NOW, NOW]
        compact(log, now_ms=NOW)
        assert len(pairs(log)) == (1 if retention_ms == 0 else 2)


class TestWhatIsKeptOfEmptyBatches:
    def test_the_last_batch_of_a_producer_stays_without_records(self, log) -> None:
        fields = {"producer_epoch": 0, "compression": CompressionType.LZ4}
        append(log, [(b"a", b"1")], producer_id=1, base_sequence=0, **fields)
        append(log, [(b"a", b"2")], producer_id=1, base_sequence=1, **fields)
        append(log, [(b"a", b"3")], producer_id=2, base_sequence=0, **fields)
        append(log, [(b"a", b"4")], roll=True)
        compact(log, now_ms=NOW)
        found = [read_header(batch) for batch in batches(log)]
        assert [(one.producer_id, one.last_sequence, one.record_count) for one in found] == [
            (1, 1, 0),
            (2, 0, 0),
            (-1, -1, 1),
        ]
        assert found[0].max_timestamp_ms == NOW
        before = batches(log)
        compact(log, now_ms=NOW)
        assert batches(log) == before

    def test_the_timestamp_of_an_empty_batch_is_not_found_as_a_records_timestamp(self, log, harness) -> None:
        append(log, [(b"a", b"1")], now_ms=NOW + 100, producer_id=1, producer_epoch=0, base_sequence=0)
        append(log, [(b"a", b"2")], now_ms=NOW, roll=True)
        compact(log, now_ms=NOW)
        assert [read_header(batch).max_timestamp_ms for batch in batches(log)] == [NOW + 100, NOW]
        assert log.reader.find_max_timestamp()[:2] == (NOW, 1)
        log.close()
        assert harness.open(clean=True).reader.find_max_timestamp()[:2] == (NOW, 1)

    def test_the_empty_last_batch_of_an_expired_producer_is_removed(self, log, harness) -> None:
        append(log, [(b"a", b"1")], producer_id=1, producer_epoch=0, base_sequence=0)
        append(log, [(b"a", b"4")], roll=True)
        os.utime(harness.path(0), (NOW / 1_000, NOW / 1_000))
        compact(log, now_ms=NOW + DAY_MS + 1)
        assert [read_header(batch).producer_id for batch in batches(log)] == [-1]

    def test_a_producer_that_writes_old_timestamps_keeps_its_empty_last_batch(self, log, harness) -> None:
        append(log, [(b"a", b"1")], producer_id=1, producer_epoch=0, base_sequence=0)
        append(log, [(b"a", b"4")], roll=True)
        os.utime(harness.path(0), (NOW / 1_000 + 2 * 86_400, NOW / 1_000 + 2 * 86_400))
        compact(log, now_ms=NOW + 2 * DAY_MS)
        assert [read_header(batch).producer_id for batch in batches(log)] == [1, -1]

    def test_the_last_batch_of_a_segment_stays_without_records(self, log, harness) -> None:
        append(log, [(b"a", b"1")])
        append(log, [(b"a", b"2"), (b"a", b"3")], roll=True)
        append(log, [(b"a", b"4")], roll=True)
        log.config = replace(CONFIG, segment_bytes=140)  # too small for two of the segments
        compact(log, now_ms=NOW)
        assert log.segments.base_offsets == (0, 3, 4)
        assert [(one.base_offset, one.last_offset, one.record_count) for one in map(read_header, batches(log))] == [
            (1, 2, 0),
            (3, 3, 1),
        ]
        assert log.reader.find_max_timestamp()[:2] == (NOW, 3)

    def test_a_cleaned_segment_ends_where_the_next_begins_so_that_recovery_keeps_all_records(
        self, log, harness
    ) -> None:
        self.test_the_last_batch_of_a_segment_stays_without_records(log, harness)
        found = pairs(log)
        log.abandon()
        harness.config = LogConfig(segment_bytes=1024)  # the broker uses this until it knows the topic's own
        assert pairs(harness.open(recovery_point=0)) == found

    def test_a_merged_segment_has_the_modification_time_of_its_newest_source(self, log, harness) -> None:
        append(log, [(b"a", b"1")], roll=True)
        append(log, [(b"a", b"2")], roll=True)
        os.utime(harness.path(0), (1_000, 1_000))
        os.utime(harness.path(1), (2_000, 2_000))
        compact(log, now_ms=NOW)
        assert harness.path(0).stat().st_mtime == 2_000


def test_a_cleaning_removes_records_without_a_key(log) -> None:
    log.config = LogConfig(segment_bytes=1024)  # the topic has no compaction policy yet
    append(log, [(None, b"1"), (b"a", b"1"), (None, b"2")], roll=True)
    log.config = CONFIG
    compact(log)
    assert pairs(log) == [(1, b"a", b"1")]


def test_keys_of_control_records_do_not_supersede_keys_of_data_records(log) -> None:
    marker = end_transaction_marker(
        ControlRecordType.COMMIT, producer_id=9, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW
    )
    key = decode_batch(marker)[0].key
    append(log, [(key, b"data")])
    written = bytearray(marker)
    assign_offset(written, base_offset=1, partition_leader_epoch=0)
    log.append_as_follower(written, leader_epoch=9, now_ms=NOW)
    append(log, [(b"a", b"data")], roll=True)
    compact(log)
    assert [offset for offset, _, _ in pairs(log)] == [0, 1, 2]


def test_a_cleaning_merges_small_segments(log, harness) -> None:
    for number in range(12):
        append(log, [(b"k%d" % number, b"v" * 40)], roll=True)
    sizes = [harness.path(base).stat().st_size for base in log.segments.base_offsets[:-1]]
    compact(log)
    assert log.segments.base_offsets == (0, 9, 12)
    assert harness.path(0).stat().st_size == sum(sizes[:9]) <= CONFIG.segment_bytes
    assert [offset for offset, _, _ in pairs(log)] == list(range(12))
    log.check_invariants()
    for base in log.segments.base_offsets:
        assert {path.suffix for path in harness.directory.glob(f"{base:020d}.*")} >= {".log", ".index", ".timeindex"}
    assert not list(harness.directory.glob("*.deleted")) + list(harness.directory.glob("*.swap"))


def test_the_indexes_after_a_cleaning_equal_indexes_rebuilt_from_the_new_log(log, harness) -> None:
    for number in range(30):
        append(log, [(b"k%d" % (number % 7), b"v" * 30)], now_ms=NOW + number)
    seal(log)
    compact(log)
    expected = {path.name: path.read_bytes() for path in harness.directory.glob("*index")}
    assert any(expected.values())
    for offset, _, _ in pairs(log):
        assert decode_batch(log.reader.read(offset, 1).records)[0].offset == offset
        assert log.reader.find_timestamp(NOW + offset).offset == offset
    log.close()
    for path in harness.directory.glob("*index"):
        path.unlink()
    harness.open(clean=True).check_invariants()
    rebuilt = {path.name: path.read_bytes() for path in harness.directory.glob("*index")}
    assert {name: rebuilt[name] for name in expected} == expected


class TestMaxCompactionLag:
    """Records above the maximum lag are compacted at any dirty ratio, so the active segment must roll."""

    def test_an_append_rolls_an_active_segment_older_than_the_max_compaction_lag(self, log) -> None:
        log.config = replace(CONFIG, max_compaction_lag_ms=500)
        append(log, [(b"a", b"1")], now_ms=NOW)
        append(log, [(b"a", b"2")], now_ms=NOW + 500)
        assert log.segments.base_offsets == (0,)
        append(log, [(b"a", b"3")], now_ms=NOW + 501)
        assert log.segments.base_offsets == (0, 2)

    def test_the_max_compaction_lag_rolls_only_segments_of_compacted_topics(self, log) -> None:
        log.config = replace(CONFIG, max_compaction_lag_ms=500, cleanup_policy=("delete",))
        append(log, [(b"a", b"1")], now_ms=NOW)
        append(log, [(b"a", b"2")], now_ms=NOW + 501)
        assert log.segments.base_offsets == (0,)

    def test_an_overdue_active_segment_is_rolled_without_another_append(self, log) -> None:
        log.config = replace(CONFIG, max_compaction_lag_ms=500)
        append(log, [(b"a", b"1")], now_ms=NOW)
        append(log, [(b"a", b"2")], now_ms=NOW + 400)
        assert (log.compaction.roll_overdue(now_ms=NOW + 500), log.segments.base_offsets) == (False, (0,))
        assert (log.compaction.roll_overdue(now_ms=NOW + 501), log.segments.base_offsets) == (True, (0, 2))
        assert not log.compaction.roll_overdue(now_ms=NOW + 10**6), "there is nothing in it"

    @pytest.mark.parametrize(
        "settings",
        [{}, {"max_compaction_lag_ms": 500, "cleanup_policy": ("delete",)}],
        ids=["no limit", "not compacted"],
    )
    def test_a_log_without_a_max_compaction_lag_or_compaction_is_not_rolled(self, log, settings) -> None:
        log.config = replace(CONFIG, **settings)
        append(log, [(b"a", b"1")], now_ms=NOW)
        assert not log.compaction.roll_overdue(now_ms=NOW + 10**9)

    def test_records_with_old_timestamps_do_not_roll_the_active_segment_at_every_check(self, log) -> None:
        log.config = replace(CONFIG, max_compaction_lag_ms=500)
        append(log, [(b"a", b"1")], now_ms=NOW)
        assert log.compaction.roll_overdue(now_ms=NOW + 10**6)
        append(log, [(b"a", b"2")], now_ms=NOW)
        assert not log.compaction.roll_overdue(now_ms=NOW + 10**6 + 500)
        assert log.compaction.roll_overdue(now_ms=NOW + 10**6 + 501)

    def test_the_max_compaction_lag_counts_from_the_oldest_dirty_record(self, log) -> None:
        append(log, [(b"a", b"1")], now_ms=NOW, roll=True)
        append(log, [(b"a", b"2")], now_ms=NOW + 100, roll=True)

        def delay_ms(now_ms: int) -> int:
            to_clean = log.compaction.to_clean(last_stable_offset=2, now_ms=now_ms)
            return log.compaction.delay_ms(to_clean, now_ms=now_ms)

        assert delay_ms(NOW + 10**9) == 0, "no limit"
        log.config = replace(CONFIG, max_compaction_lag_ms=500)
        assert (delay_ms(NOW + 500), delay_ms(NOW + 501)) == (0, 1)
        log.compaction.cleaned_to_offset = 1
        assert (delay_ms(NOW + 600), delay_ms(NOW + 601)) == (0, 1)
        log.compaction.cleaned_to_offset = 2
        assert delay_ms(NOW + 10**6) == -500


def test_a_cleaning_with_a_full_offset_map_takes_several_rounds(log) -> None:
    for number in range(6):
        append(log, [(b"k%d" % (number % 3), b"%d" % number)], roll=True)
    ends = []
    while log.compaction.cleaned_to_offset < 6:
        stats = compact(log, dedupe_buffer_bytes=1)
        ends.append(log.compaction.cleaned_to_offset)
        assert (stats.key_count, stats.buffer_utilization > 1) == (1, True)
    assert ends == [1, 2, 3, 4, 5, 6]
    assert [offset for offset, _, _ in pairs(log)] == [3, 4, 5]


def test_a_cleaning_may_continue_from_a_checkpoint_inside_a_batch(log) -> None:
    """Kafka's cleaner may stop between two records of a batch."""
    append(log, [(b"a", b"1")])
    append(log, [(b"a", b"2"), (b"b", b"1"), (b"a", b"3")], roll=True)
    log.compaction.cleaned_to_offset = 2
    compact(log)
    assert pairs(log) == [(2, b"b", b"1"), (3, b"a", b"3")]


def test_a_topic_with_delete_and_compact_is_cleaned_and_loses_expired_records(log) -> None:
    log.config = replace(CONFIG, cleanup_policy=("delete", "compact"), retention_ms=1_000)
    append(log, [(b"a", b"1"), (b"b", b"1")], now_ms=NOW, roll=True)
    append(log, [(b"a", b"2")], now_ms=NOW + 2_000, roll=True)
    log.config = replace(log.config, segment_bytes=100)
    compact(log, now_ms=NOW)
    assert pairs(log) == [(1, b"b", b"1"), (2, b"a", b"2")]
    assert log.retention.apply(now_ms=NOW + 2_500, high_watermark=3) is not None
    assert (log.log_start_offset, pairs(log)) == (2, [(2, b"a", b"2")])


class TestDamage:
    @pytest.mark.parametrize("cleaned_before", [False, True])
    def test_a_corrupt_batch_ends_a_cleaning_and_leaves_the_files_unchanged(self, log, harness, cleaned_before) -> None:
        append(log, [(b"a", b"1"), (b"b", b"1")], roll=True)
        if cleaned_before:
            compact(log)
        append(log, [(b"a", b"2")], roll=True)
        path = harness.path(0)
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        files = {path.name: path.read_bytes() for path in harness.directory.iterdir()}
        with pytest.raises(CorruptBatchError):
            compact(log)
        assert {path.name: path.read_bytes() for path in harness.directory.iterdir()} == files

    def test_a_cleaning_refuses_a_batch_with_a_wrong_record_length(self, log, harness) -> None:
        batch = bytearray(encode_batch([(NOW, b"a", b"1", ())]))
        batch[61] = 0x7F
        set_log_append_time(batch, NOW)  # so that the checksum fits the bad byte
        log.append_as_follower(batch, leader_epoch=9, now_ms=NOW)
        seal(log)
        with pytest.raises(CorruptBatchError):
            compact(log)


class TestMeanwhile:
    """Tests changes of the log while a thread cleans it."""

    @pytest.fixture
    def planned(self, log) -> tuple[PartitionLog, Any, LogCleaning]:
        for number in range(3):
            append(log, [(b"a", b"%d" % number)], roll=True)
        log.config = replace(CONFIG, segment_bytes=160)
        plan = log.compaction.plan(log.compaction.to_clean(last_stable_offset=3, now_ms=NOW))
        cleaning = LogCleaning(
            Disk(),
            plan,
            dedupe_buffer_bytes=1_000_000,
            io_buffer_bytes=4096,
            producer_id_expiration_ms=DAY_MS,
            pace=lambda _: None,
            now_ms=NOW,
        )
        cleaning.build_offset_map()
        return log, plan, cleaning

    def test_a_read_that_was_located_before_a_cleaning_gets_the_old_bytes(self, planned, harness) -> None:
        log, _, cleaning = planned
        expected = log.reader.read(0, 1000).records
        located = log.reader.locate(0, 1000)
        fd = located.segment.files.duplicate_fd()  # like a cold read
        for group in cleaning.groups():
            cleaned = cleaning.clean(group)
            if cleaned is not None:
                Disk().remove(log.replacement.replace(group, cleaned, now_ms=NOW).paths)
        assert os.pread(fd, located.part.size_bytes, located.part.position) == expected
        os.close(fd)
        assert log.reader.read(0, 1000).records != expected

    def test_segments_that_a_cleaning_replaced_are_removed_after_the_delay(self, planned, harness) -> None:
        log, _, cleaning = planned
        (group, *_) = cleaning.groups()
        deletion = log.replacement.replace(group, cleaning.clean(group), now_ms=NOW)
        assert deletion.due_ms == NOW + CONFIG.file_delete_delay_ms
        assert sorted(deletion.paths) == sorted(str(path) for path in harness.directory.glob("*.deleted"))

    @pytest.mark.parametrize(
        "happens",
        [
            lambda log: log.truncate_to(1, now_ms=NOW),
            lambda log: log.truncate_fully_and_start_at(7, now_ms=NOW),
            lambda log: log.abandon(),
        ],
        ids=["truncated", "truncated fully", "deleted"],
    )
    def test_a_cleaning_replaces_no_segment_of_a_log_that_was_truncated_or_deleted(
        self, planned, happens: Callable[[PartitionLog], None]
    ) -> None:
        log, plan, cleaning = planned
        groups = cleaning.groups()
        assert all(log.replacement.has_planned(plan, group) for group in groups)
        assert log.replacement.has_planned(plan, ())
        happens(log)
        assert not any(log.replacement.has_planned(plan, group) for group in groups)
        assert not log.replacement.has_planned(plan, ())

    def test_a_cleaning_does_not_replace_segments_that_retention_deleted(self, planned) -> None:
        log, plan, cleaning = planned
        log.config = replace(log.config, cleanup_policy=("delete",), retention_bytes=100)
        log.retention.apply(now_ms=NOW, high_watermark=3)
        first, *rest = cleaning.groups()
        assert not log.replacement.has_planned(plan, first)
        assert all(log.replacement.has_planned(plan, group) for group in rest)

    def test_a_cleaning_that_its_pacer_ends_at_any_moment_leaves_the_log_unchanged(self, log, harness) -> None:
        for number in range(3):
            append(log, [(b"a", b"%d" % number)], roll=True)
        before = pairs(log)
        for calls in itertools.count():
            left = iter(range(calls))

            def pace(_: int, left: Any = left) -> None:
                if next(left, None) is None:
                    raise InterruptedError

            try:
                compact(log, pace=pace)
            except InterruptedError:
                assert pairs(log) == before
                assert not [path for path in harness.directory.iterdir() if path.suffix == ".cleaned"]
            else:
                break
        assert calls > 6
        assert len(pairs(log)) == 1
