"""Tests transactions of several producers in one log against a list of batches.

Writes, markers, crashes, lost snapshots and transaction indexes, truncations and deletions come in any order. After
each step, the last stable offset is that of the list. A reader of committed records sees exactly the records of
committed transactions and those outside transactions, in order and from any start. Every producer continues with the
epoch and sequence of the list.
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

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.isolation import VisibleBatches
from klamm.model import TopicPartition
from klamm.records import decode_batch, encode_batch, iter_headers, read_header
from klamm_broker.log.files.storage_failure import LogDir
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.partition.log_loader import LoadContext, load_partition
from klamm_broker.log.partition.partition_log import PartitionLog, TransactionEnd
from klamm_broker.log.segment.segment_pool import SegmentPool
from klamm_server.runtime.disk import Disk
from tests.support.log_steps import check_sound

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, retention_ms=-1)
FENCED = EXCEPTIONS[ErrorCode.INVALID_PRODUCER_EPOCH]
OUT_OF_ORDER = EXCEPTIONS[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
NO_TRANSACTION = EXCEPTIONS[ErrorCode.INVALID_TXN_STATE]
PRODUCERS = (7, 8, 9)
MARKED_MS = 500
"""When markers are written: before the records, but not at 0, which a time index cannot tell from no entry."""


class Written(NamedTuple):
    """A batch of the log. Only a marker has an `outcome`."""

    offset: int
    count: int
    producer_id: int
    epoch: int
    is_transactional: bool
    outcome: str | None = None

    @property
    def end(self) -> int:
        return self.offset + self.count


class Span(NamedTuple):
    """A transaction: its batches, and the marker that ended it."""

    batches: list[Written]
    marker: Written | None


class TransactionModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="klamm-transaction-model-"))
        self.directory = self.root / "orders-0"
        self.pool = SegmentPool(2)
        self.written: list[Written] = []
        self.start = self.flushed = self.high_watermark = 0
        self.log = self.open(clean=False)

    def open(self, *, clean: bool) -> PartitionLog:
        rng = random.Random(0)
        context = LoadContext(
            config=CONFIG, log_start_offset=self.start, recovery_point=self.flushed, clean_shutdown=clean, now_ms=0
        )
        log = PartitionLog(
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
        # A loaded log does not know which markers are committed. Decisions below the snapshot remain valid.
        log.commit(self.end)
        self.high_watermark = self.end
        return log

    def teardown(self) -> None:
        self.log.abandon()
        shutil.rmtree(self.root)

    # What the list says

    @property
    def end(self) -> int:
        return self.written[-1].end if self.written else 0

    def epoch_of(self, producer_id: int) -> int:
        return max((one.epoch for one in self.written if one.producer_id == producer_id), default=0)

    def next_sequence(self, producer_id: int) -> int:
        epoch = self.epoch_of(producer_id)
        return sum(
            one.count
            for one in self.written
            if (one.producer_id, one.epoch) == (producer_id, epoch) and one.outcome is None
        )

    def spans(self) -> list[Span]:
        open_spans: dict[int, list[Written]] = {}
        found = []
        for one in self.written:
            if one.outcome is not None:
                if one.producer_id in open_spans:
                    found.append(Span(open_spans.pop(one.producer_id), one))
            elif one.is_transactional:
                open_spans.setdefault(one.producer_id, []).append(one)
        return found + [Span(batches, None) for batches in open_spans.values()]

    def is_open(self, producer_id: int) -> bool:
        return any(span.marker is None and span.batches[0].producer_id == producer_id for span in self.spans())

    def stable_offset(self) -> int:
        unstable = [
            span.batches[0].offset
            for span in self.spans()
            if span.marker is None or span.marker.offset >= self.high_watermark
        ]
        return max(self.start, min([self.high_watermark, *unstable]))

    def visible(self) -> list[int]:
        hidden = {
            batch.offset
            for span in self.spans()
            if span.marker is None or span.marker.outcome == "abort"
            for batch in span.batches
        }
        return [
            offset
            for one in self.written
            if one.outcome is None and one.offset not in hidden
            for offset in range(one.offset, one.end)
        ]

    # Steps of the simulation

    def send(self, producer_id: int, epoch: int, sequence: int, count: int, *, is_transactional: bool) -> None:
        records = [(1_000, None, b"v" * 20, ())] * count
        batch = encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        guard = None
        if is_transactional:
            guard = self.log.producers.begin_verification(read_header(batch), now_ms=0)
            assert (guard is None) == self.is_open(producer_id)
        self.log.append_as_leader(batch, leader_epoch=0, now_ms=0, guard=guard)

    @rule(producer_id=st.sampled_from(PRODUCERS), count=st.integers(1, 3))
    def write_in_transaction(self, producer_id: int, count: int) -> None:
        epoch, sequence = self.epoch_of(producer_id), self.next_sequence(producer_id)
        self.send(producer_id, epoch, sequence, count, is_transactional=True)
        self.written.append(Written(self.end, count, producer_id, epoch, True))

    @rule(producer_id=st.sampled_from((-1, *PRODUCERS)), count=st.integers(1, 3))
    def write_outside(self, producer_id: int, count: int) -> None:
        if producer_id < 0:
            records = [(1_000, None, b"v" * 20, ())] * count
            self.log.append_as_leader(encode_batch(records), leader_epoch=0, now_ms=0)
            self.written.append(Written(self.end, count, -1, -1, False))
            return
        epoch, sequence = self.epoch_of(producer_id), self.next_sequence(producer_id)
        if self.is_open(producer_id):
            with pytest.raises(NO_TRANSACTION):
                self.send(producer_id, epoch, sequence, count, is_transactional=False)
            return
        self.send(producer_id, epoch, sequence, count, is_transactional=False)
        self.written.append(Written(self.end, count, producer_id, epoch, False))

    @rule(
        producer_id=st.sampled_from(PRODUCERS), outcome=st.sampled_from(["commit", "abort"]), version=st.integers(1, 2)
    )
    def end_transaction(self, producer_id: int, outcome: str, version: int) -> None:
        epoch = self.epoch_of(producer_id) + (version == 2)
        end = TransactionEnd(producer_id, epoch, outcome == "commit", 0, version)
        appended = self.log.append_marker(end, leader_epoch=0, now_ms=MARKED_MS)
        assert (appended.base_offset, appended.is_duplicate) == (self.end, False)
        self.written.append(Written(self.end, 1, producer_id, epoch, True, outcome))
        if version == 2:
            again = self.log.append_marker(end, leader_epoch=0, now_ms=MARKED_MS)
            assert (again.last_offset, again.is_duplicate) == (self.end - 1, True)

    @rule(part=st.floats(0, 1))
    def commit(self, part: float) -> None:
        ends = [one.end for one in self.written if one.end >= self.high_watermark]
        if ends:
            self.high_watermark = ends[int((len(ends) - 1) * part)]
        self.log.commit(self.high_watermark)

    @rule()
    def flush(self) -> None:
        self.log.flusher.flush()
        self.flushed = self.end

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        offset = self.start + int((self.high_watermark - self.start) * part)
        self.log.advance_log_start(offset, high_watermark=self.high_watermark)
        self.start = max(self.start, offset)

    @rule(batches=st.integers(0, 6))
    def truncate(self, batches: int) -> None:
        keep = len(self.written) - batches
        while 0 < keep < len(self.written) and self.written[keep].offset < max(self.start, self.high_watermark):
            keep += 1
        if keep <= 0:
            return
        del self.written[keep:]
        self.log.truncate_to(self.end, now_ms=0)
        self.log.commit(self.high_watermark)
        self.flushed = min(self.flushed, self.end)

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.flushed = self.end
        self.log = self.open(clean=True)

    @rule(lost=st.sets(st.sampled_from([".snapshot", ".txnindex", ".index"])), torn=st.booleans())
    def crash(self, lost: set[str], torn: bool) -> None:
        """Crashes the log.

        Written bytes survive, but unflushed ones must be scanned again, and files may be missing or torn.
        """
        self.log.abandon()
        for path in self.directory.iterdir():
            is_unflushed = int(path.name[:20]) >= self.flushed if path.name[:20].isdigit() else False
            if path.suffix in lost and (is_unflushed or path.suffix == ".snapshot"):
                path.unlink()
            elif torn and path.suffix == ".txnindex":
                path.write_bytes(path.read_bytes()[:-5])
        self.log = self.open(clean=False)

    # Invariants of the simulation

    @invariant()
    def is_stable_up_to_what_the_list_says(self) -> None:
        first = self.log.first_unstable_offset
        stable = self.high_watermark if first is None else min(first, self.high_watermark)
        assert max(stable, self.start) == self.stable_offset()
        self.log.check_invariants()
        check_sound(self.log)

    @rule(begin=st.floats(0, 1), max_bytes=st.integers(1, 900))
    def read_committed(self, begin: float, max_bytes: int) -> None:
        stable = self.stable_offset()
        offset = first = self.start + int((stable - self.start) * begin)
        seen = []
        while (located := self.log.reader.locate(offset, max_bytes, max_offset=stable)) is not None:
            if not located.part.size_bytes:
                break
            aborted = self.log.reader.aborted_in(located, offset, stable)
            visible = VisibleBatches([(one.producer_id, one.first_offset) for one in aborted])
            data = located.segment.files.read(located.part)
            for position, header in iter_headers(data):
                if not visible.hides(header, data, position):
                    seen += [record.offset for record in decode_batch(data, position) if record.offset >= first]
                offset = header.next_offset
        assert seen == [one for one in self.visible() if first <= one < stable]

    @rule(producer_id=st.sampled_from(PRODUCERS))
    def a_zombie_is_refused(self, producer_id: int) -> None:
        epoch, sequence = self.epoch_of(producer_id), self.next_sequence(producer_id)
        if not any(one.producer_id == producer_id for one in self.written):
            return
        if epoch:
            with pytest.raises(FENCED):
                self.send(producer_id, epoch - 1, sequence, 1, is_transactional=True)
            with pytest.raises(FENCED):
                self.log.append_marker(TransactionEnd(producer_id, epoch - 1, True, 0, 1), leader_epoch=0, now_ms=0)
        if self.is_open(producer_id):
            with pytest.raises(FENCED, match="belongs to the previous transaction"):
                self.log.append_marker(TransactionEnd(producer_id, epoch, True, 0, 2), leader_epoch=0, now_ms=0)
            with pytest.raises(OUT_OF_ORDER, match=f"expected {sequence}"):
                self.send(producer_id, epoch, sequence + 1, 1, is_transactional=True)


TestTransactionModel = TransactionModel.TestCase
TestTransactionModel.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[phase for phase in Phase if phase is not Phase.shrink],  # keep failing runs short enough to read
)
