"""One segment: append, read, locate, index, truncate, and what a failing disk leaves behind."""

from __future__ import annotations

import errno
import itertools
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.records.errors import CorruptBatchError
from klamm.records.header import iter_headers
from klamm_broker.log.disk import Disk
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.offset_index import CorruptIndexError
from klamm_broker.log.segment import AppendedBatch, FileSlice, Segment, roll_jitter_ms

CONFIG = LogConfig(index_interval_bytes=200, segment_bytes=10_000)


def new_segment(path: Path, disk: Disk | None = None, *, base: int = 0, config: LogConfig = CONFIG) -> Segment:
    return Segment(disk or Disk(), str(path), base, config=config, created_ms=5_000, roll_jitter_ms=0)


def append(segment: Segment, data: bytes) -> None:
    """`data`: batches with their offsets."""
    headers = [header for _, header in iter_headers(data)]
    batches = [AppendedBatch(h.last_offset, h.max_timestamp_ms, h.size_bytes) for h in headers]
    segment.append([data], batches, len(data))


@pytest.fixture
def filled(tmp_path, make_batch):
    """A segment of 30 batches of one to three records, open, and the batches."""
    segment = new_segment(tmp_path)
    segment.create()
    batches, offset = [], 0
    for number in range(30):
        count = number % 3 + 1
        batch = make_batch(count, base_offset=offset, timestamps=[1_000 + 10 * offset] * count)
        append(segment, batch)
        batches.append(batch)
        offset += count
    yield segment, batches
    segment.release()


def test_what_is_appended_is_read(filled) -> None:
    segment, batches = filled
    assert segment.size_bytes == sum(map(len, batches))
    assert segment.read(FileSlice(0, segment.size_bytes)) == b"".join(batches)
    assert segment.next_offset == 60
    segment.check_invariants()


@pytest.mark.parametrize("max_bytes", [0, 1, 80, 200, 500, 1_000, 10_000])
@pytest.mark.parametrize("end_offset", [60, 31])
@pytest.mark.parametrize("min_one", [True, False])
def test_locate_against_a_list(filled, max_bytes: int, end_offset: int, min_one: bool) -> None:
    segment, batches = filled
    spans, position = [], 0
    for batch in batches:
        ((_, header),) = iter_headers(batch)
        spans.append((position, position + len(batch), header.last_offset))
        position += len(batch)
    end_position = next((start for start, _, last in spans if last >= end_offset), position)
    for offset in range(60):
        start = next(start for start, _, last in spans if last >= offset)
        fitting = [end for s, end, _ in spans if s >= start and end <= min(start + max_bytes, end_position)]
        first_end = next(end for s, end, _ in spans if s == start)
        expected = max(fitting, default=start)
        if expected == start and min_one and first_end <= end_position:
            expected = first_end
        part = segment.locate(offset, max_bytes, end_position, min_one=min_one)
        if start < end_position:
            assert part == FileSlice(start, expected - start), offset
        else:
            assert part is None or part.size_bytes == 0, offset
    assert segment.locate(60, max_bytes, position, min_one=min_one) is None


@pytest.mark.parametrize("seed", range(8))
def test_who_reads_on_gets_what_a_segment_just_opened_gives(filled, make_batch, seed: int) -> None:
    segment, _ = filled
    rng = random.Random(seed)
    positions = [0, 0, segment.next_offset]
    for _ in range(200):
        if rng.random() < 0.2:
            append(segment, make_batch(rng.randint(1, 3), base_offset=segment.next_offset))
        elif rng.random() < 0.05:
            segment.truncate_to(max(1, segment.next_offset - rng.randint(0, 9)))
        segment.write_indexes()
        fresh = new_segment(Path(segment.directory))
        fresh.open()
        reader = rng.randrange(len(positions))
        offset, max_bytes = min(positions[reader], segment.next_offset), rng.randint(1, 2_000)
        part = segment.locate(offset, max_bytes, segment.size_bytes, min_one=True)
        assert part == fresh.locate(offset, max_bytes, segment.size_bytes, min_one=True), (offset, max_bytes)
        read = segment.read(part) if part is not None else b""
        positions[reader] = max((header.next_offset for _, header in iter_headers(read)), default=0)
        fresh.release()


def test_who_waited_for_an_append_finds_it_without_a_read(tmp_path, make_batch, faulty_disk) -> None:
    segment = new_segment(tmp_path, faulty_disk)
    segment.create()
    for offset in range(50):
        append(segment, make_batch(1, base_offset=offset))
        faulty_disk.calls.clear()
        part = segment.locate(offset, 1_000, segment.size_bytes, min_one=True)
        assert part is not None
        assert part.position + part.size_bytes == segment.size_bytes
        assert not faulty_disk.calls
    segment.release()


def test_one_writev_per_record_set(tmp_path, make_batch, faulty_disk) -> None:
    segment = new_segment(tmp_path, faulty_disk)
    segment.create()
    append(segment, make_batch(1) + make_batch(1, base_offset=1) + make_batch(1, base_offset=2))
    assert faulty_disk.calls.count("writev") == 1
    segment.release()


@pytest.mark.parametrize("limit", [1, 7, 64])
def test_short_writes_are_continued(tmp_path, make_batch, faulty_disk, limit: int) -> None:
    faulty_disk.write_limit = limit
    segment = new_segment(tmp_path, faulty_disk)
    segment.create()
    data = make_batch(2) + make_batch(1, base_offset=2)
    segment.append(
        [data[:10], data[10:11], data[11:]],
        [AppendedBatch(1, 1_000, len(make_batch(2))), AppendedBatch(2, 1_000, len(make_batch(1)))],
        len(data),
    )
    assert segment.read(FileSlice(0, segment.size_bytes)) == data
    segment.release()


def test_more_buffers_than_one_writev_takes(tmp_path) -> None:
    disk = Disk()
    fd = disk.open(str(tmp_path / "file"), 0o102 | 0o2000)
    parts = [bytes([n % 251]) * (n % 3) for n in range(5_000)]
    disk.writev_all(fd, parts, sum(map(len, parts)))
    disk.close(fd)
    assert (tmp_path / "file").read_bytes() == b"".join(parts)


@pytest.mark.parametrize("room", [0, 1, 60, 100])
def test_a_full_disk_leaves_the_segment_as_before(tmp_path, make_batch, faulty_disk, room: int) -> None:
    segment = new_segment(tmp_path, faulty_disk)
    segment.create()
    append(segment, make_batch(2))
    before = Path(segment.path()).read_bytes()
    faulty_disk.room = room
    with pytest.raises(OSError, match="No space"):
        append(segment, make_batch(3, base_offset=2))
    assert Path(segment.path()).read_bytes() == before
    faulty_disk.room = None
    append(segment, make_batch(3, base_offset=2))
    assert segment.next_offset == 5
    segment.check_invariants()
    segment.release()


def test_creation_that_fails_leaves_no_file(tmp_path, faulty_disk) -> None:
    segment = new_segment(tmp_path, faulty_disk)
    faulty_disk.errors["open"] = errno.ENOSPC
    faulty_disk.only_below = segment.path(".timeindex")
    with pytest.raises(OSError, match="No space"):
        segment.create()
    assert list(tmp_path.iterdir()) == []


def test_index_entries_are_of_batches_an_interval_apart(filled) -> None:
    segment, batches = filled
    segment.seal()
    data = Path(segment.path(".index")).read_bytes()
    entries = [
        (int.from_bytes(data[i : i + 4], "big"), int.from_bytes(data[i + 4 : i + 8], "big"))
        for i in range(0, len(data), 8)
    ]
    starts = {position: header.last_offset for position, header in iter_headers(b"".join(batches))}
    assert entries
    assert all(starts[position] == offset for offset, position in entries)
    positions = [0] + [position for _, position in entries]
    assert all(after - before > 200 for before, after in itertools.pairwise(positions))
    assert segment.size_bytes - positions[-1] <= 200 + 2 * max(map(len, batches))


def damage_nothing(path: Path) -> None:
    pass


def missing(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def odd_size(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def lost_tail(path: Path) -> None:
    entry = 8 if path.suffix == ".index" else 12
    path.write_bytes(path.read_bytes()[:entry])


def zeros(path: Path) -> None:
    path.write_bytes(bytes(len(path.read_bytes())))


def padded(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(8 * 12 * 10))


def garbage(path: Path) -> None:
    size = len(path.read_bytes())
    path.write_bytes(random.Random(3).randbytes(size))


def of_another_log(path: Path) -> None:
    """Well-formed, but from a log whose records are larger and later."""
    data = bytearray(path.read_bytes())
    entry = 8 if path.suffix == ".index" else 12
    for i in range(0, len(data), entry):
        data[i + entry - 1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [damage_nothing, missing, empty, odd_size, lost_tail, zeros, padded, garbage, of_another_log],
)
@pytest.mark.parametrize("suffixes", [(".index",), (".timeindex",), (".index", ".timeindex")])
def test_damaged_indexes_are_made_again_from_the_log(filled, damage, suffixes) -> None:
    segment, batches = filled
    segment.seal()
    whole = {suffix: Path(segment.path(suffix)).read_bytes() for suffix in (".index", ".timeindex")}
    segment.release()
    for suffix in suffixes:
        damage(Path(segment.path(suffix)))
    again = new_segment(Path(segment.directory))
    if not again.attach(60):
        assert damage is not damage_nothing
        again.open()
        again.rebuild_indexes()
    again.open()
    again.seal()
    assert Path(again.path(".index")).read_bytes() == whole[".index"]
    if damage not in (lost_tail, of_another_log) or ".timeindex" not in suffixes:
        # Nothing in the log contradicts these two, and a time index is a hint where to begin to look.
        assert Path(again.path(".timeindex")).read_bytes() == whole[".timeindex"]
    assert again.next_offset == 60
    assert again.largest.timestamp_ms == 1_570
    for offset in range(60):
        _, header = again.find_batch(offset)
        assert header.base_offset <= offset <= header.last_offset
    again.check_invariants()
    again.release()
    assert batches


def test_an_index_that_turns_wrong_in_use_is_noticed(filled) -> None:
    segment, _ = filled
    segment.seal()
    segment.release()
    path = Path(segment.path(".index"))
    data = bytearray(path.read_bytes())
    assert len(data) >= 24
    data[8 + 7] += 1
    path.write_bytes(data)
    segment.open()
    entry_offset = int.from_bytes(data[8:12], "big")
    with pytest.raises((CorruptIndexError, CorruptBatchError)):
        segment.find_batch(entry_offset)
    segment.rebuild_indexes()
    assert segment.find_batch(entry_offset) is not None


def test_attach_knows_the_size_and_the_largest_timestamp(filled) -> None:
    segment, batches = filled
    segment.seal()
    segment.release()
    again = new_segment(Path(segment.directory))
    assert again.attach(60)
    assert (again.size_bytes, again.largest) == (sum(map(len, batches)), (1_570, 59))
    assert not again.is_open


def test_a_full_disk_does_not_keep_a_segment_from_opening(filled, faulty_disk) -> None:
    segment, _ = filled
    segment.release()
    for suffix in (".index", ".timeindex"):
        Path(segment.path(suffix)).unlink(missing_ok=True)
    faulty_disk.room = 0
    again = new_segment(Path(segment.directory), faulty_disk)
    again.open()
    assert again.next_offset == 60
    assert again.find_batch(42) is not None
    faulty_disk.room = None
    again.write_indexes()
    assert Path(again.path(".index")).stat().st_size > 0
    again.release()


def test_truncation_against_what_is_left(filled) -> None:
    segment, batches = filled
    for offset in (58, 41, 40, 7, 1, 0):
        kept = []
        for batch in batches:
            ((_, header),) = iter_headers(batch)
            if header.last_offset < offset:
                kept.append(batch)
        segment.write_indexes()
        segment.truncate_to(offset)
        assert segment.read(FileSlice(0, segment.size_bytes)) == b"".join(kept)
        segment.check_invariants()
        last = max((h.last_offset for b in kept for _, h in iter_headers(b)), default=-1)
        assert segment.next_offset == last + 1
        expected = max((h.max_timestamp_ms for b in kept for _, h in iter_headers(b)), default=-1)
        assert segment.largest.timestamp_ms == expected
        for path in (segment.path(".index"), segment.path(".timeindex")):
            assert Path(path).exists()
    assert segment.truncate_to(5) == 0


def test_recover_cuts_at_the_first_bad_byte(filled) -> None:
    segment, batches = filled
    segment.release()
    path = Path(segment.path())
    data = bytearray(path.read_bytes())
    start = sum(map(len, batches[:17]))
    data[start + 65] ^= 0xFF
    path.write_bytes(data)
    seen = []
    again = new_segment(Path(segment.directory))
    assert again.recover(seen.append) == len(data) - start
    assert path.read_bytes() == bytes(data[:start])
    assert len(seen) == 17
    again.check_invariants()
    again.release()


def test_recover_refuses_batches_out_of_order(tmp_path, make_batch) -> None:
    segment = new_segment(tmp_path)
    segment.create()
    append(segment, make_batch(5))
    append(segment, make_batch(2, base_offset=3))
    segment.release()
    again = new_segment(tmp_path)
    again.recover(lambda header: None)
    assert again.next_offset == 5
    again.release()


class TestRoll:
    def should_roll(self, segment: Segment, **options) -> bool:
        arguments = {
            "append_bytes": 100,
            "last_offset": 100,
            "max_timestamp_ms": 1_000,
            "now_ms": 5_000,
            "config": CONFIG,
        }
        return segment.should_roll(**(arguments | options))

    def test_by_size(self, filled) -> None:
        segment, _ = filled
        room = CONFIG.segment_bytes - segment.size_bytes
        assert not self.should_roll(segment, append_bytes=room)
        assert self.should_roll(segment, append_bytes=room + 1)

    def test_by_the_records_clock(self, filled) -> None:
        segment, _ = filled
        config = LogConfig(segment_ms=500)
        assert not self.should_roll(segment, max_timestamp_ms=1_500, config=config, now_ms=10**9)
        assert self.should_roll(segment, max_timestamp_ms=1_501, config=config, now_ms=0)

    def test_the_first_timestamp_survives_a_restart(self, filled) -> None:
        segment, _ = filled
        segment.release()
        again = new_segment(Path(segment.directory))
        again.open()
        config = LogConfig(segment_ms=500)
        assert not self.should_roll(again, max_timestamp_ms=1_500, config=config)
        assert self.should_roll(again, max_timestamp_ms=1_501, config=config)
        again.release()

    def test_by_our_clock_without_timestamps(self, tmp_path, make_batch) -> None:
        segment = new_segment(tmp_path)
        segment.create()
        append(segment, make_batch(1, timestamps=[-1]))
        config = LogConfig(segment_ms=500)
        assert not self.should_roll(segment, max_timestamp_ms=-1, now_ms=5_500, config=config)
        assert self.should_roll(segment, max_timestamp_ms=-1, now_ms=5_501, config=config)
        segment.release()

    def test_jitter_takes_time_off(self, filled) -> None:
        segment, _ = filled
        segment.roll_jitter_ms = 100
        assert self.should_roll(segment, max_timestamp_ms=1_401, config=LogConfig(segment_ms=500))

    def test_by_a_full_index(self, tmp_path, make_batch) -> None:
        segment = new_segment(tmp_path, config=LogConfig(segment_index_bytes=36, index_interval_bytes=1))
        segment.create()
        for offset in range(3):
            assert not self.should_roll(segment)
            append(segment, make_batch(1, base_offset=offset, timestamps=[offset]))
        assert self.should_roll(segment)
        segment.release()

    def test_by_an_offset_too_far_from_the_base(self, filled) -> None:
        segment, _ = filled
        assert not self.should_roll(segment, last_offset=2**31 - 1)
        assert self.should_roll(segment, last_offset=2**31)

    def test_an_empty_segment_never_rolls_for_time_or_size(self, tmp_path) -> None:
        segment = new_segment(tmp_path)
        segment.create()
        assert not self.should_roll(segment, append_bytes=10**9, now_ms=10**15)
        assert self.should_roll(segment, last_offset=2**31)
        segment.release()


@given(st.integers(0, 1000), st.integers(1, 1000), st.integers())
@settings(max_examples=50)
def test_jitter_is_below_both_bounds(jitter_ms: int, segment_ms: int, seed: int) -> None:
    config = LogConfig(segment_jitter_ms=jitter_ms, segment_ms=segment_ms)
    assert 0 <= roll_jitter_ms(config, random.Random(seed)) <= min(jitter_ms, segment_ms)
