"""Tests compaction of transactions: aborted records go, markers go last, and reads and replays give the same result."""

from __future__ import annotations

import pytest

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.isolation import VisibleBatches
from klamm.records import BatchHeader, decode_batch, encode_batch, iter_headers, read_header
from klamm_broker.log.partition.partition_log import PartitionLog, TransactionEnd
from klamm_server.runtime.disk import Disk
from tests.support.cleaning_steps import DAY_MS, compact
from tests.support.compacted_log import CONFIG, NOW
from tests.support.in_pieces import read_in_pieces

FENCED = EXCEPTIONS[ErrorCode.INVALID_PRODUCER_EPOCH]


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


def write(
    log: PartitionLog, key: bytes, value: bytes, *, producer_id: int = 9, epoch: int = 0, sequence: int = 0
) -> None:
    batch = encode_batch(
        [(NOW, key, value, ())],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    guard = log.producers.begin_verification(read_header(batch), now_ms=NOW)
    log.append_as_leader(batch, leader_epoch=0, now_ms=NOW, guard=guard)


def end(log: PartitionLog, *, commit: bool, producer_id: int = 9, epoch: int = 1) -> None:
    log.append_marker(TransactionEnd(producer_id, epoch, commit, 0, 2), leader_epoch=0, now_ms=NOW)


def seal(log: PartitionLog) -> None:
    """Ends the active segment, written at NOW."""
    Disk().set_modified_ms(log.segments.active.files.path(), NOW)
    log.segments.roll(log.log_end_offset, NOW)
    log.flusher.flush()
    log.commit(log.log_end_offset)


def headers(log: PartitionLog) -> list[BatchHeader]:
    return [header for segment in log.segments.items for _, header in log.segments.opened(segment).files.headers()]


def committed(log: PartitionLog) -> list[tuple[bytes | None, bytes | None]]:
    """Returns the committed records from the start, as a reader sees them."""
    found, offset, stable = [], log.log_start_offset, log.log_end_offset
    while (located := log.reader.locate(offset, 200, max_offset=stable)) is not None and located.part.size_bytes:
        aborted = [(one.producer_id, one.first_offset) for one in log.reader.aborted_in(located, offset, stable)]
        visible = VisibleBatches(aborted)
        data = located.segment.files.read(located.part)
        for position, header in iter_headers(data):
            if not visible.hides(header, data, position):
                found += [(record.key, record.value) for record in decode_batch(data, position)]
            offset = header.next_offset
    return found


def test_an_aborted_record_is_removed_and_supersedes_no_other_record(log) -> None:
    write(log, b"a", b"committed")
    end(log, commit=True)
    write(log, b"a", b"aborted", epoch=1)
    end(log, commit=False, epoch=2)
    seal(log)
    compact(log, now_ms=NOW)
    assert committed(log) == [(b"a", b"committed")]
    assert [header.last_offset for header in headers(log)] == [0, 1, 3]
    log.check_invariants()


def test_a_marker_is_removed_after_its_transactions_records_and_delete_retention_ms(log) -> None:
    write(log, b"a", b"1")
    end(log, commit=True)
    write(log, b"a", b"2", producer_id=8)
    end(log, commit=True, producer_id=8)
    seal(log)
    compact(log, now_ms=NOW)
    assert [header.last_offset for header in headers(log)] == [1, 2, 3]  # the marker was needed when it began
    later = NOW + 2 * DAY_MS  # the producers have expired by then
    for now_ms, expected in ((later, [1, 2, 3]), (later + 4_999, [1, 2, 3]), (later + 5_000, [2, 3])):
        compact(log, now_ms=now_ms)
        assert [header.last_offset for header in headers(log)] == expected
    assert committed(log) == [(b"a", b"2")]


def test_the_last_marker_of_a_producer_stays_and_fences(log, harness) -> None:
    write(log, b"a", b"1")
    end(log, commit=False)
    write(log, b"b", b"2", producer_id=8)
    end(log, commit=True, producer_id=8)
    seal(log)
    for now_ms in (NOW, NOW + 1, NOW + 10_000, NOW + 20_000):
        compact(log, now_ms=now_ms)
    assert [header.last_offset for header in headers(log)] == [1, 2, 3]
    log.abandon()
    for path in harness.directory.glob("*.snapshot"):
        path.unlink()
    again = harness.open(recovery_point=0)
    with pytest.raises(FENCED):
        write(again, b"a", b"late")
    again.commit(again.log_end_offset)
    assert again.first_unstable_offset is None


def test_aborted_records_stay_invisible_after_a_cleaning_of_half_their_transaction(log, harness) -> None:
    """The abort's first records are in a cleaned segment, and its last records in a segment that is not cleaned yet."""
    write(log, b"a", b"kept", producer_id=7)
    end(log, commit=True, producer_id=7)
    write(log, b"a", b"aborted")
    seal(log)
    write(log, b"b", b"aborted", sequence=1)
    end(log, commit=False)
    log.flusher.flush()
    log.commit(log.log_end_offset)
    for _ in range(2):
        compact(log, now_ms=NOW)
        assert committed(log) == [(b"a", b"kept")]
    seal(log)
    compact(log, now_ms=NOW)
    assert committed(log) == [(b"a", b"kept")]
    point = log.flusher.recovery_point
    log.close()
    again = harness.open(clean=True, recovery_point=point)
    assert committed(again) == [(b"a", b"kept")]
