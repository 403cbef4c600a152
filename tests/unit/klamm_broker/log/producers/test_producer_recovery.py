"""Tests that the log's producer state matches its records after restarts, crashes, truncations and deletions."""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import TopicPartition
from klamm.records.encoder import encode_batch
from klamm_broker.log.files.storage_failure import DiskFull, LogDir
from klamm_broker.log.log_config import LOG_APPEND_TIME, LogConfig
from klamm_broker.log.partition.log_loader import LoadContext, load_partition
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_broker.log.producers.producer_snapshot import decode_snapshot
from klamm_broker.log.segment.segment_pool import SegmentPool
from klamm_server.runtime.disk import Disk

OUT_OF_ORDER = EXCEPTIONS[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
FENCED = EXCEPTIONS[ErrorCode.INVALID_PRODUCER_EPOCH]


def send(log: PartitionLog, sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, now_ms: int = 0):
    records = [(1_000, None, b"x" * 40, ())] * count
    batch = encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return log.append_as_leader(batch, leader_epoch=0, now_ms=now_ms)


def snapshots(harness) -> list[int]:
    return sorted(int(path.stem) for path in harness.directory.glob("*.snapshot"))


def test_a_duplicate_gets_the_result_of_the_first_append_and_is_not_written(harness) -> None:
    harness.config = LogConfig(message_timestamp_type=LOG_APPEND_TIME)
    log = harness.open()
    first = send(log, 0, 3, now_ms=5_000)
    send(log, 3, now_ms=6_000)
    again = send(log, 0, 3, now_ms=7_000)
    assert again == first._replace(is_duplicate=True)
    assert (again.log_append_time_ms, log.log_end_offset) == (5_000, 4)


def test_each_segment_begins_with_a_snapshot_and_the_end_has_one_after_an_orderly_stop(harness) -> None:
    log = harness.open()
    for sequence in range(0, 40, 2):
        send(log, sequence, 2)
    bases = log.segments.base_offsets
    assert len(bases) > 2
    assert snapshots(harness) == list(bases[1:])
    log.close()
    assert snapshots(harness) == [*bases[1:], 40]
    (row,) = decode_snapshot(harness.path(40, ".snapshot").read_bytes())
    assert (row.producer_id, row.epoch, row.run.last_sequence) == (7, 0, 39)


def test_after_an_orderly_stop_no_segment_is_read(harness, monkeypatch: pytest.MonkeyPatch) -> None:
    log = harness.open()
    for sequence in range(30):
        send(log, sequence)
    log.close()
    # The log must not scan these damaged bytes.
    first = harness.path(0)
    first.write_bytes(b"\xff" * 300 + first.read_bytes()[300:])
    again = harness.open(clean=True)
    assert send(again, 29).base_offset == 29
    assert send(again, 30).base_offset == 30


def test_after_a_crash_the_tail_is_read(harness) -> None:
    log = harness.open()
    for sequence in range(30):
        send(log, sequence)
    log.flusher.flush()
    recovery_point = harness.crash(log)
    again = harness.open(recovery_point=recovery_point)
    assert send(again, 29).is_duplicate
    with pytest.raises(OUT_OF_ORDER, match="expected 30"):
        send(again, 31)


@pytest.mark.parametrize("damage", ["flipped", "emptied", "removed"])
def test_a_damaged_producer_snapshot_is_rebuilt_from_the_log(
    harness, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = harness.open()
    for sequence in range(30):
        send(log, sequence)
    log.close()
    for path in harness.directory.glob("*.snapshot"):
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data if damage == "flipped" else b"")
        if damage == "removed":
            path.unlink()
    with caplog.at_level(logging.WARNING):
        again = harness.open(clean=True)
    assert ("ignored a producer snapshot" in caplog.text) == (damage != "removed")
    assert send(again, 28).is_duplicate
    assert send(again, 30).base_offset == 30
    assert snapshots(harness) == list(again.segments.base_offsets[1:])


def test_a_producer_snapshot_beyond_the_log_end_is_ignored(harness) -> None:
    """The records of the snapshot were lost, and others may have replaced them."""
    log = harness.open()
    for sequence in range(30):
        send(log, sequence)
    log.close()
    newest = harness.path(log.segments.base_offsets[-1])
    newest.write_bytes(newest.read_bytes()[:-1])
    again = harness.open(recovery_point=0)
    assert again.log_end_offset == 29
    assert send(again, 29).base_offset == 29
    assert max(snapshots(harness)) <= 29


def test_producers_outlive_their_records(harness) -> None:
    """An idle producer can continue even if retention has deleted all its records (KIP-360)."""
    log = harness.open()
    send(log, 0)
    for sequence in range(40):
        send(log, sequence, producer_id=8)
    deletion = log.retention.apply(now_ms=10**12, high_watermark=41)
    assert deletion is not None
    assert log.log_start_offset == 41
    assert snapshots(harness) == [41]
    recovery_point = harness.crash(log)
    again = harness.open(recovery_point=recovery_point, log_start_offset=41)
    with pytest.raises(OUT_OF_ORDER, match="expected 1"):
        send(again, 2)
    assert send(again, 1).base_offset == 41


def test_a_follower_has_the_producer_state_of_the_batches_it_replicated(harness) -> None:
    log = harness.open()
    records = [(1_000, None, b"x", ())] * 2
    for sequence in range(0, 6, 2):
        batch = encode_batch(records, producer_id=7, producer_epoch=3, base_sequence=sequence, base_offset=sequence)
        log.append_as_follower(batch, leader_epoch=9, now_ms=0)
    assert send(log, 2, 2, epoch=3).base_offset == 2
    with pytest.raises(FENCED):
        send(log, 6, epoch=2)
    assert send(log, 6, epoch=3).base_offset == 6


def test_a_failed_append_does_not_change_the_producer_state(harness, faulty_disk) -> None:
    harness.disk = faulty_disk
    log = harness.open()
    send(log, 0)
    faulty_disk.room = 10
    with pytest.raises(DiskFull):
        send(log, 1)
    faulty_disk.room = None
    assert send(log, 1).base_offset == 1


class Written(NamedTuple):
    producer_id: int
    epoch: int
    sequence: int
    count: int
    offset: int


CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, retention_ms=-1, retention_bytes=1_500)


class ProducersOfALog(RuleBasedStateMachine):
    """A log checked against a list of batches that are in the log or were deleted from its start."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="klamm-producer-model-"))
        self.directory = self.root / "orders-0"
        self.written: list[Written] = []
        self.start = self.flushed = 0
        self.log = self.open(clean=False)

    def open(self, *, clean: bool) -> PartitionLog:
        context = LoadContext(
            config=CONFIG, log_start_offset=self.start, recovery_point=self.flushed, clean_shutdown=clean, now_ms=0
        )
        return PartitionLog(
            disk=Disk(),
            log_dir=LogDir(str(self.root)),
            directory=str(self.directory),
            topic_partition=TopicPartition("orders", 0),
            topic_id=None,
            config=CONFIG,
            loaded=load_partition(Disk(), str(self.directory), context, random.Random(0)),
            pool=SegmentPool(2),
            rng=random.Random(0),
        )

    def teardown(self) -> None:
        self.log.abandon()
        shutil.rmtree(self.root)

    @property
    def end(self) -> int:
        return self.written[-1].offset + self.written[-1].count if self.written else 0

    def last(self, producer_id: int) -> Written | None:
        return next((one for one in reversed(self.written) if one.producer_id == producer_id), None)

    @rule(producer_id=st.integers(0, 2), counts=st.lists(st.integers(1, 3), min_size=1, max_size=3), bump=st.booleans())
    def append(self, producer_id: int, counts: list[int], bump: bool) -> None:
        last = self.last(producer_id)
        epoch = 0 if last is None else last.epoch + bump
        sequence = 0 if last is None or bump else last.sequence + last.count
        data, offset = b"", self.end
        for count in counts:
            records = [(1_000, None, b"x" * 30, ())] * count
            data += encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            self.written.append(Written(producer_id, epoch, sequence, count, offset))
            sequence, offset = sequence + count, offset + count
        result = self.log.append_as_leader(data, leader_epoch=0, now_ms=0)
        assert (result.last_offset, result.is_duplicate) == (self.end - 1, False)

    @rule(count=st.integers(1, 3))
    def append_of_nobody(self, count: int) -> None:
        self.log.append_as_leader(encode_batch([(1_000, None, b"x", ())] * count), leader_epoch=0, now_ms=0)
        self.written.append(Written(-1, -1, -1, count, self.end))

    @precondition(lambda self: self.written)
    @rule(pick=st.integers(0, 10**6))
    def send_again(self, pick: int) -> None:
        """Sends one of the producer's last batches again, even if other producers have written in between."""
        producer_id = pick % 3
        last = self.last(producer_id)
        kept = [one for one in self.written if last and one[:2] == last[:2]][-5:]
        if not kept:
            return
        one = kept[pick // 3 % len(kept)]
        again = send(self.log, one.sequence, one.count, producer_id=producer_id, epoch=one.epoch)
        assert (again.base_offset, again.last_offset, again.is_duplicate) == (
            one.offset,
            one.offset + one.count - 1,
            True,
        )

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        self.log.truncate_to(max(self.start, self.end - back), now_ms=0)
        self.cut()

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        self.log.advance_log_start(self.start + int((self.end - self.start) * part), high_watermark=self.end)
        self.retain()

    @rule()
    def retain(self) -> None:
        deletion = self.log.retention.apply(now_ms=0, high_watermark=self.end)
        self.start = self.log.log_start_offset
        if deletion is not None:
            Disk().remove(deletion.paths)

    @rule()
    def flush(self) -> None:
        self.log.flusher.flush()
        self.flushed = self.end

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.flushed = self.end
        self.log = self.open(clean=True)

    @rule(lost=st.integers(0, 600))
    def crash(self, lost: int) -> None:
        self.log.abandon()
        newest = max(self.directory.glob("*.log"))
        if max(self.flushed, self.start) <= int(newest.stem):
            newest.write_bytes(newest.read_bytes()[: max(0, newest.stat().st_size - lost)])
        self.log = self.open(clean=False)
        self.cut()

    @precondition(lambda self: self.start == 0)
    @rule(lost=st.lists(st.booleans(), min_size=30, max_size=30), clean=st.booleans())
    def lose_snapshots(self, lost: list[bool], clean: bool) -> None:
        """Damages some snapshots. Their state can be rebuilt while no records have been deleted."""
        self.log.close()
        self.flushed = self.end
        for path, is_lost in zip(sorted(self.directory.glob("*.snapshot")), lost, strict=False):
            if is_lost:
                path.write_bytes(path.read_bytes()[:-1])
        self.log = self.open(clean=clean)

    def cut(self) -> None:
        """Adjusts the model to a log that may have become shorter. Batches are lost as a whole."""
        self.written = [one for one in self.written if one.offset < self.log.log_end_offset]
        self.start = self.log.log_start_offset
        self.flushed = min(self.flushed, self.end)

    @invariant()
    def knows_what_comes_next(self) -> None:
        assert self.log.log_end_offset == max(self.end, self.start)
        self.log.check_invariants()
        for producer_id in range(3):
            last = self.last(producer_id)
            if last is None:
                continue
            expected = last.sequence + last.count
            with pytest.raises(OUT_OF_ORDER, match=f"expected {expected}"):
                send(self.log, expected + 1, producer_id=producer_id, epoch=last.epoch)
            with pytest.raises(OUT_OF_ORDER, match="expected 0"):
                send(self.log, 1, producer_id=producer_id, epoch=last.epoch + 1)
            if last.epoch:
                with pytest.raises(FENCED):
                    send(self.log, 0, producer_id=producer_id, epoch=last.epoch - 1)


TestProducersOfALog = ProducersOfALog.TestCase
TestProducersOfALog.settings = settings(
    max_examples=50, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
