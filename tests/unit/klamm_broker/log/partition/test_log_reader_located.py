"""Tests that a log never returns a place of records that it found before the records went."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from klamm.errors import BrokerError
from klamm_broker.log.partition.log_reader import LOCATED_MAX, LogReader
from klamm_broker.log.partition.partition_log import PartitionLog
from tests.support import seeds
from tests.support.partition_logs import fill

NOW = 1_000_000


def places(log: PartitionLog, asked: list[tuple[int, int]]) -> list[object]:
    """Returns where the log has the records of each (offset, max_bytes), or the code of the error."""
    found: list[object] = []
    for offset, max_bytes in asked:
        try:
            found.append(log.reader.locate(offset, max_bytes))
        except BrokerError as error:
            found.append(error.code)
    return found


def fresh_places(log: PartitionLog, asked: list[tuple[int, int]]) -> list[object]:
    """Returns as `places`, for a log that remembers none. Then the log remembers the same places as before."""
    remembered = dict(log.segments.located)
    found = []
    for one in asked:
        log.segments.located.clear()
        found += places(log, [one])
    log.segments.located.clear()
    log.segments.located.update(remembered)
    return found


def rewrite_end(log: PartitionLog, make_batch: Callable[..., bytes]) -> None:
    """Replaces the last records by as many in one batch."""
    end = log.log_end_offset
    start = max(log.log_start_offset, end - 6)
    log.truncate_to(start, now_ms=NOW)
    missing = end - log.log_end_offset
    if missing:
        fill(log, make_batch, 1, records=missing)


@pytest.mark.parametrize("seed", [seeds.run_seed() + number for number in range(3)])
def test_a_log_that_changes_finds_the_same_places_as_one_that_remembers_none(log, make_batch, seed: int) -> None:
    print(f"seed {seed}; again with TEST_SEED={seed}")
    rng = random.Random(seed)
    asked: list[tuple[int, int]] = []
    for _ in range(25):
        end = log.log_end_offset
        change = rng.random()
        if change < 0.4:
            fill(log, make_batch, rng.randint(1, 5), records=rng.randint(1, 6))
        elif change < 0.55:
            log.truncate_to(rng.randint(max(log.log_start_offset, end - 20), end), now_ms=NOW)
        elif change < 0.65:
            log.advance_log_start(rng.randint(log.log_start_offset, end), high_watermark=end)
        elif change < 0.75:
            log.retention.apply(now_ms=NOW, high_watermark=log.log_start_offset)
        elif change < 0.9:
            rewrite_end(log, make_batch)
        elif change < 0.92:
            log.truncate_fully_and_start_at(end, now_ms=NOW)
        offset = log.log_end_offset - rng.randint(1, 4)
        asked += [(offset, 100), (offset, 10_000)]
        remembered = places(log, asked[-6:])
        assert len(log.segments.located) <= LOCATED_MAX
        assert remembered == fresh_places(log, asked[-6:])


def test_rewritten_records_are_found_at_their_new_place(log, make_batch) -> None:
    asked = [(log.log_end_offset - 1, 10_000)]
    before = places(log, asked)
    rewrite_end(log, make_batch)
    after = places(log, asked)
    assert after == fresh_places(log, asked) != before


def test_readers_of_the_same_records_search_once(log, monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[tuple[int, ...]] = []
    search = LogReader._search

    def counted(reader: LogReader, *asked: int) -> object:
        searches.append(asked)
        return search(reader, *asked)

    monkeypatch.setattr(LogReader, "_search", counted)
    first, second = log.reader.locate(5, 200), log.reader.locate(5, 200)
    assert first is second
    assert len(searches) == 1
    log.reader.locate(5, 300)
    assert len(searches) == 2


def test_a_remembered_place_in_a_segment_that_the_pool_closed_can_be_read(log) -> None:
    first = log.reader.read(0, 200)
    segment = log.segments.items[0]
    log.segments._pool.forget(segment)
    segment.release()
    assert log.reader.read(0, 200) == first
