"""Tests compaction against a list of records: random keys, tombstones, batch shapes, producers, and cleanings.

The model is every record that was ever appended. After any number of cleanings, each remaining record must be one of
them, unchanged and at its offset. The last record of each key must be there, unless it is a tombstone whose time is
over. Below the cleaned offset there must be no other record. The sequence numbers in the headers are those of the
model.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from klamm.model import TopicPartition
from klamm.records import CompressionType, decode_batch, encode_batch, iter_headers
from klamm_broker.log.cleaning.offset_map import ENTRY_BYTES
from klamm_broker.log.files.storage_failure import LogDir
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.log_loader import LoadContext, load_partition
from klamm_broker.log.partition.partition_log import PartitionLog
from klamm_broker.log.segment.segment_pool import SegmentPool
from klamm_server.runtime.disk import Disk
from tests.support.cleaning_steps import compact
from tests.support.in_pieces import read_in_pieces
from tests.support.log_steps import check_sound

CONFIG = LogConfig(
    segment_bytes=900,
    index_interval_bytes=150,
    retention_ms=-1,
    cleanup_policy=("compact",),
    delete_retention_ms=10_000,
)
KEYS = [b"", b"a", b"bb", b"c" * 70, *(b"key-%d" % number for number in range(6))]


class Stored(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class CompactionModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="klamm-compaction-model-"))
        self.pool = SegmentPool(2)
        self.now_ms = 1_000_000
        self.records: list[Stored] = []
        self.sequences: dict[int, int] = {}
        self.last_batches: dict[int, tuple[int, int]] = {}  # producer id -> last sequence, last offset
        self.seen_ms: dict[int, int] = {}  # offset of a tombstone -> the time when a cleaning first met it
        self.log = self.open(clean=False, recovery_point=0)

    def open(self, *, clean: bool, recovery_point: int) -> PartitionLog:
        rng = random.Random(0)
        context = LoadContext(
            config=LogConfig(segment_bytes=CONFIG.segment_bytes),  # the topic's own comes later, as in the broker
            log_start_offset=0,
            recovery_point=recovery_point,
            clean_shutdown=clean,
            now_ms=self.now_ms,
        )
        log = PartitionLog(
            disk=Disk(),
            log_dir=LogDir(str(self.root)),
            directory=str(self.root / "orders-0"),
            topic_partition=TopicPartition("orders", 0),
            topic_id=None,
            config=context.config,
            loaded=load_partition(Disk(), str(self.root / "orders-0"), context, rng),
            pool=self.pool,
            rng=rng,
        )
        log.config = CONFIG
        return log

    def teardown(self) -> None:
        self.log.abandon()
        shutil.rmtree(self.root)

    @rule(
        picks=st.lists(
            st.tuples(st.sampled_from(KEYS), st.integers(0, 40) | st.none(), st.booleans(), st.integers(-500, 500)),
            min_size=1,
            max_size=6,
        ),
        producer_id=st.sampled_from([-1, -1, 7, 8]),
        compression=st.sampled_from(CompressionType),
        epoch=st.integers(0, 2),
    )
    def append(
        self,
        picks: list[tuple[bytes, int | None, bool, int]],
        producer_id: int,
        compression: CompressionType,
        epoch: int,
    ) -> None:
        self.now_ms += 100
        base = self.log.log_end_offset
        rows = []
        for number, (key, size, has_header, shift_ms) in enumerate(picks):
            value = None if size is None else b"%d:" % (base + number) + b"x" * size
            headers = (("h", b"1"), ("n", None)) if has_header else ()
            rows.append((self.now_ms + shift_ms, key, value, headers))
            self.records.append(Stored(base + number, *rows[-1]))
        fields = {}
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + len(rows)
            self.last_batches[producer_id] = (sequence + len(rows) - 1, base + len(rows) - 1)
            fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        batch = encode_batch(rows, compression=compression, **fields)
        leader_epoch = max(self.log.epochs.latest_epoch, epoch)
        self.log.append_as_leader(batch, leader_epoch=leader_epoch, now_ms=self.now_ms)

    @rule()
    def flush(self) -> None:
        self.log.flusher.flush()

    @rule(later_ms=st.sampled_from([1, 5_000, 20_000]))
    def time_passes(self, later_ms: int) -> None:
        self.now_ms += later_ms

    @rule(back=st.integers(0, 8), key_count=st.sampled_from([1, 3, 1000]), io_buffer_bytes=st.sampled_from([64, 4096]))
    def clean(self, back: int, key_count: int, io_buffer_bytes: int) -> None:
        before = self.log.compaction.cleaned_to_offset
        compact(
            self.log,
            now_ms=self.now_ms,
            last_stable_offset=max(0, self.log.log_end_offset - back),
            dedupe_buffer_bytes=key_count * ENTRY_BYTES,
            io_buffer_bytes=io_buffer_bytes,
        )
        end = self.log.compaction.cleaned_to_offset
        assert before <= end <= min(self.log.flusher.recovery_point, self.log.segments.base_offsets[-1])
        for record in self.records:
            if record.offset < end and record.value is None:
                self.seen_ms.setdefault(record.offset, self.now_ms)

    @rule()
    def restart(self) -> None:
        cleaned_to = self.log.compaction.cleaned_to_offset
        self.log.close()
        self.log = self.open(clean=True, recovery_point=self.log.flusher.recovery_point)
        self.log.compaction.cleaned_to_offset = cleaned_to

    @rule(lose_indexes=st.booleans(), checkpointed=st.floats(0, 1))
    def crash(self, lose_indexes: bool, checkpointed: float) -> None:
        """Crashes without a loss, but everything above an older recovery point is scanned."""
        cleaned_to, end = self.log.compaction.cleaned_to_offset, self.log.log_end_offset
        self.log.abandon()
        if lose_indexes:
            for path in (self.root / "orders-0").glob("*index"):
                path.unlink()
        self.log = self.open(clean=False, recovery_point=int(checkpointed * self.log.flusher.recovery_point))
        assert self.log.log_end_offset == end
        self.log.compaction.cleaned_to_offset = min(cleaned_to, self.log.flusher.recovery_point)

    @invariant()
    def keeps_the_last_record_of_each_key(self) -> None:
        found: list[Stored] = []
        headers = []
        offset = 0
        while data := self.log.reader.read(offset, 300).records:
            for position, header in iter_headers(data):
                headers.append(header)
                found += [Stored(*record) for record in decode_batch(data, position)]
                offset = header.next_offset
        assert offset == self.log.log_end_offset
        by_offset = {record.offset: record for record in self.records}
        assert [by_offset[record.offset] for record in found] == found
        assert [record.offset for record in found] == sorted({record.offset for record in found})
        self.check_last_values({record.offset for record in found})
        self.check_nothing_superseded(
            [record for record in found if record.offset < self.log.compaction.cleaned_to_offset]
        )
        sequences = {h.producer_id: (h.last_sequence, h.last_offset) for h in headers if h.producer_id >= 0}
        assert sequences == self.last_batches
        self.log.check_invariants()
        check_sound(self.log)

    def check_last_values(self, found: set[int]) -> None:
        for record in {record.key: record for record in self.records}.values():
            if record.value is not None:
                assert record.offset in found, record
            elif record.offset not in found:
                assert self.now_ms >= self.seen_ms[record.offset] + CONFIG.delete_retention_ms, record

    def check_nothing_superseded(self, cleaned: list[Stored]) -> None:
        """Checks that the cleaned part has each key only once."""
        keys = [record.key for record in cleaned]
        assert len(set(keys)) == len(keys), keys

    @rule(pick=st.integers(0, 10**6))
    def look_up_the_newest(self, pick: int) -> None:
        newest = self.log.reader.find_max_timestamp()
        if newest is not None:
            assert newest.timestamp_ms == self.records[newest.offset].timestamp_ms


class CompactionInPiecesModel(CompactionModel):
    """The same with batches that are too large to be read at once."""

    def __init__(self) -> None:
        self.patch = pytest.MonkeyPatch()
        read_in_pieces(self.patch, long_record_bytes=27)
        super().__init__()

    def teardown(self) -> None:
        self.patch.undo()
        super().teardown()


_SETTINGS = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[phase for phase in Phase if phase is not Phase.shrink],  # keep failing runs short enough to read
)
TestCompactionModel = CompactionModel.TestCase
TestCompactionModel.settings = _SETTINGS
TestCompactionInPiecesModel = CompactionInPiecesModel.TestCase
TestCompactionInPiecesModel.settings = _SETTINGS
