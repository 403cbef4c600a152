"""Tests a log against a list: random appends, truncations, deletions, flushes, crashes with a torn tail, restarts.

The model is the list of readable (offset, value), and the offset below which everything is on disk. A crash loses any
suffix of the bytes above that offset. The reopened log must hold exactly a prefix of its former records, which includes
all flushed ones. From then on that prefix is the model.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from klamm.model import TopicPartition
from klamm.records.decoder import decode_batch
from klamm.records.encoder import encode_batch
from klamm.records.header import iter_headers
from klamm_broker.log.files.storage_failure import LogDir
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.log_loader import LoadContext, load_partition
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_broker.log.segment.segment_pool import SegmentPool
from klamm_server.runtime.disk import Disk
from tests.support.log_steps import check_sound

CONFIG = LogConfig(
    segment_bytes=800, index_interval_bytes=150, segment_ms=5_000, retention_ms=-1, retention_bytes=1_500
)


class LogModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="klamm-log-model-"))
        self.directory = self.root / "orders-0"
        self.pool = SegmentPool(2)
        self.now_ms = 1_000
        self.records: list[tuple[int, int, bytes]] = []  # offset, timestamp, value
        self.batch_ends: list[int] = [0]
        self.start = 0
        self.epoch = 0
        self.flushed = 0
        self.written = 0
        self.log = self.open(clean=False)

    def open(self, *, clean: bool) -> PartitionLog:
        rng = random.Random(0)
        context = LoadContext(
            config=CONFIG,
            log_start_offset=self.start,
            recovery_point=self.flushed,
            clean_shutdown=clean,
            now_ms=self.now_ms,
        )
        return PartitionLog(
            disk=Disk(),
            log_dir=LogDir(str(self.root)),
            directory=str(self.directory),
            topic_partition=TopicPartition("orders", 0),
            topic_id=None,
            config=CONFIG,
            loaded=load_partition(Disk(), str(self.directory), context, rng),
            pool=self.pool,
            rng=rng,
        )

    def teardown(self) -> None:
        self.log.abandon()
        shutil.rmtree(self.root)

    @property
    def end(self) -> int:
        return self.batch_ends[-1]

    @rule(
        sizes=st.lists(st.integers(1, 4), min_size=1, max_size=2),
        step_ms=st.integers(-2_000, 4_000),
        value_bytes=st.integers(0, 60),
    )
    def append(self, sizes: list[int], step_ms: int, value_bytes: int) -> None:
        self.now_ms += 10
        time = max(1, self.now_ms + step_ms)  # a time index reads an entry at 0 as missing
        data = b""
        offset = self.end
        for size in sizes:
            rows = []
            for _ in range(size):
                self.written += 1
                rows.append((time, None, b"%d:" % self.written + b"x" * value_bytes, ()))
                self.records.append((offset, time, rows[-1][2]))
                offset += 1
            data += encode_batch(rows)
            self.batch_ends.append(offset)
        result = self.log.append_as_leader(data, leader_epoch=self.epoch, now_ms=self.now_ms)
        assert (result.base_offset, result.last_offset) == (offset - sum(sizes), offset - 1)

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1

    @rule(back=st.integers(0, 30))
    def truncate(self, back: int) -> None:
        offset = max(self.start, self.end - back)
        self.log.truncate_to(offset, now_ms=self.now_ms)
        while self.batch_ends[-1] > offset and len(self.batch_ends) > 1:
            self.batch_ends.pop()
        if self.end < self.start:
            # The batch that contains the log's start was truncated, so the log now starts and ends where that batch
            # began.
            self.start = self.end
        self.records = [record for record in self.records if record[0] < self.end]
        self.flushed = min(self.flushed, self.end)

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        offset = self.start + int((self.end - self.start) * part)
        self.log.advance_log_start(offset, high_watermark=self.end)
        self.start = max(self.start, offset)

    @rule(back=st.integers(0, 10))
    def retain(self, back: int) -> None:
        mark = max(self.start, self.end - back)
        deletion = self.log.retention.apply(now_ms=self.now_ms, high_watermark=mark)
        assert self.log.log_start_offset <= max(mark, self.start)
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

    @rule(lost=st.integers(0, 900), damage=st.booleans(), lose_indexes=st.booleans())
    def crash(self, lost: int, damage: bool, lose_indexes: bool) -> None:
        held = self.end
        self.log.abandon()
        self.tear(lost, damage)
        if lose_indexes:
            for path in self.directory.glob("*index"):
                path.unlink()
        self.log = self.open(clean=False)
        assert self.flushed <= self.log.log_end_offset <= held
        assert lost or damage or self.log.log_end_offset == held
        while self.batch_ends[-1] > self.log.log_end_offset:
            self.batch_ends.pop()
        if self.end < self.start:
            # The batch that contains the log's start is lost, so the log is empty and begins where it started.
            self.batch_ends.append(self.start)
        self.records = [record for record in self.records if record[0] < self.end]

    def tear(self, lost: int, damage: bool) -> None:
        """Removes up to `lost` unflushed bytes from the end of the log.

        If `damage`, it also flips the last remaining one.
        """
        for path in sorted(self.directory.glob("*.log"), reverse=True):
            data = path.read_bytes()
            keep = 0
            for position, header in iter_headers(data):
                if header.last_offset < max(self.flushed, self.start):
                    keep = position + header.size_bytes
            cut = min(lost, len(data) - keep)
            data = bytearray(data[: len(data) - cut])
            lost -= cut
            if damage and len(data) > keep:
                data[-1] ^= 0x55
                damage = False
            path.write_bytes(data)
            if not lost or keep:
                return

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        found = []
        offset = self.start
        while data := log.reader.read(offset, 400).records:
            for position, header in iter_headers(data):
                assert header.partition_leader_epoch == log.epochs.epoch_for_offset(max(header.base_offset, self.start))
                found += [(r.offset, r.timestamp_ms, r.value) for r in decode_batch(data, position)]
                offset = header.next_offset
        assert [row for row in found if row[0] >= self.start] == [r for r in self.records if r[0] >= self.start]
        log.check_invariants()
        check_sound(log)

    @precondition(lambda self: self.records)
    @rule(pick=st.integers(0, 10**6), delta=st.integers(-1, 1))
    def look_up_a_time(self, pick: int, delta: int) -> None:
        time = self.records[pick % len(self.records)][1] + delta
        live = [record for record in self.records if record[0] >= self.start]
        expected = next(((t, offset) for offset, t, _ in live if t >= time), None)
        found = self.log.reader.find_timestamp(time)
        assert (found and found[:2]) == expected
        latest = max((t for _, t, _ in live), default=None)
        newest = self.log.reader.find_max_timestamp()
        if latest is not None:
            assert newest is not None
            assert newest.timestamp_ms == latest
            assert newest.offset == next(offset for offset, t, _ in live if t == latest)


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
