"""Tests searches by time in a part of a log, with and without a budget."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from klamm.records import CompressionType, encode_batch
from klamm.records.header import set_log_append_time
from klamm_broker.log.segment.check_budget import TURN_NS, CheckBudget, OverBudgetError
from klamm_broker.log.segment.time_search import LargestSearch, TimeSearch
from klamm_server.runtime.disk import Disk
from tests.support.in_pieces import read_in_pieces

DISK = Disk()
NOW = 1_700_000_000_000
Batch = bytes | bytearray


@pytest.fixture(params=["at once", "in pieces", "in long pieces"])
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the broker read all batches at once, or all in pieces. Each test has the same result."""
    if request.param == "in pieces":
        read_in_pieces(monkeypatch)
    elif request.param == "in long pieces":
        read_in_pieces(monkeypatch, long_record_bytes=27)


def batch(*deltas_ms: int, value: bytes = b"v") -> bytes:
    """Returns a batch from offset 10 on, with a record for each of the timestamps."""
    records = [(NOW + delta, b"k", value, ()) for delta in deltas_ms]
    return encode_batch(records, base_offset=10, compression=CompressionType.ZSTD)


@pytest.fixture
def in_log(tmp_path: Path) -> Callable[[Batch], tuple[Disk, int, int]]:
    def write(data: Batch) -> tuple[Disk, int, int]:
        path = tmp_path / "0.log"
        path.write_bytes(data)
        return DISK, DISK.open(str(path), os.O_RDONLY), len(data)

    return write


@pytest.mark.usefixtures("reading")
@pytest.mark.parametrize(("start_offset", "largest_ms"), [(10, NOW + 9), (11, NOW + 7), (12, NOW + 7), (13, -1)])
def test_the_largest_timestamp_is_that_of_the_records_from_an_offset_on(
    in_log: Callable[[Batch], tuple[Disk, int, int]], start_offset: int, largest_ms: int
) -> None:
    disk, fd, end = in_log(batch(9, -2, 7))
    for budget in (None, CheckBudget()):
        assert LargestSearch(disk, 0, end, start_offset).run(fd, budget) == largest_ms
    disk.close(fd)


@pytest.mark.usefixtures("reading")
@pytest.mark.parametrize("compression", CompressionType)
@pytest.mark.parametrize(
    ("timestamp_ms", "start_offset", "found"),
    [(NOW - 5, 0, (9, 10)), (NOW + 8, 10, (9, 10)), (NOW + 1, 11, (7, 12)), (NOW + 8, 11, None), (NOW, 13, None)],
)
def test_the_first_record_from_a_time_and_an_offset_on_is_found(
    in_log: Callable[[Batch], tuple[Disk, int, int]],
    compression: CompressionType,
    timestamp_ms: int,
    start_offset: int,
    found: tuple[int, int] | None,
) -> None:
    rows = [(NOW + delta, b"k", b"v" * 20, ()) for delta in (9, -2, 7)]
    disk, fd, end = in_log(encode_batch(rows, base_offset=10, compression=compression, partition_leader_epoch=4))
    expected = None if found is None else (NOW + found[0], found[1], 4)
    for budget in (None, CheckBudget()):
        assert TimeSearch(disk, 0, end, timestamp_ms, start_offset).run(fd, budget) == expected
    disk.close(fd)


@pytest.mark.usefixtures("reading")
def test_a_search_finds_the_time_of_the_broker(in_log: Callable[[Batch], tuple[Disk, int, int]]) -> None:
    stamped = bytearray(batch(1, 2, 3))
    set_log_append_time(stamped, NOW + 50)
    disk, fd, end = in_log(stamped)
    assert TimeSearch(disk, 0, end, NOW + 50, 12).run(fd) == (NOW + 50, 12, -1)
    assert TimeSearch(disk, 0, end, NOW + 51, 10).run(fd) is None
    disk.close(fd)


def test_the_largest_timestamp_of_a_broker_is_that_of_all_records(
    in_log: Callable[[Batch], tuple[Disk, int, int]],
) -> None:
    stamped = bytearray(batch(1, 2, 3))
    set_log_append_time(stamped, NOW + 50)
    disk, fd, end = in_log(stamped)
    assert LargestSearch(disk, 0, end, 11).run(fd, CheckBudget()) == NOW + 50
    disk.close(fd)


def test_a_stored_batch_of_any_size_is_searched(in_log: Callable[[Batch], tuple[Disk, int, int]]) -> None:
    """Older brokers accepted them, and so does Kafka."""
    disk, fd, end = in_log(batch(1, 2, value=bytes(40 << 20)))
    assert TimeSearch(disk, 0, end, NOW + 2, 10).run(fd) == (NOW + 2, 11, -1)
    assert TimeSearch(disk, 0, end, NOW + 3, 10).run(fd) is None
    assert LargestSearch(disk, 0, end, 11).run(fd) == NOW + 2
    disk.close(fd)


@pytest.mark.parametrize("search", ["time", "largest"])
def test_few_records_that_are_large_when_decompressed_are_over_the_budget(
    in_log: Callable[[Batch], tuple[Disk, int, int]], search: str
) -> None:
    disk, fd, end = in_log(batch(1, 2, value=bytes(2 * TURN_NS)))
    wanted = TimeSearch(disk, 0, end, NOW + 2, 10) if search == "time" else LargestSearch(disk, 0, end, 11)
    with pytest.raises(OverBudgetError):
        wanted.run(fd, CheckBudget())
    assert wanted.run(fd) in (NOW + 2, (NOW + 2, 11, -1))
    disk.close(fd)
