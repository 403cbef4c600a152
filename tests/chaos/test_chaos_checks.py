"""Tests that the checks of replicas find planted differences, and tests the figures of a run."""

from __future__ import annotations

import asyncio
import dataclasses
import pathlib
import random

import pytest

from klamm.errors import ErrorCode
from klamm_controller.raft.messages import EntryKind, LogEntry
from klamm_server.metadata.image import MetadataImage
from tests.chaos.klammchaos.figures import describe_outages, quantile
from tests.chaos.klammchaos.history import History
from tests.chaos.klammchaos.nemesis import deal
from tests.chaos.klammchaos.partition_replicas import check_same_records, differ, flipped_byte
from tests.chaos.klammchaos.quorum_faults import FAULTS
from tests.chaos.klammchaos.replica_checks import DivergedError, check_same_entries, check_same_images
from tests.chaos.klammchaos.topic_model import Answer, Delete, ReadTopic


def log(begin: int, end: int, term: int = 1) -> list[LogEntry]:
    return [LogEntry(index, term, EntryKind.DATA, b"%d" % index) for index in range(begin, end)]


def test_equal_raft_logs_may_have_different_starts_and_ends() -> None:
    assert check_same_entries({1: log(0, 9), 2: log(4, 8), 3: log(8, 10)}, end_index=8) == 4


def test_an_entry_that_differs_is_found() -> None:
    other = log(0, 8)
    other[5] = dataclasses.replace(other[5], payload=b"x")
    with pytest.raises(DivergedError, match="controllers 1 and 2 have different entries at 5"):
        check_same_entries({1: log(0, 8), 2: other}, end_index=8)


def test_an_entry_of_another_term_is_found() -> None:
    with pytest.raises(DivergedError, match="controllers 1 and 3 have different entries at 4"):
        check_same_entries({1: log(0, 8), 2: log(0, 8), 3: log(4, 8, term=2)}, end_index=8)


@pytest.mark.parametrize("short", [log(0, 7), []])
def test_a_raft_log_that_lacks_committed_entries_is_a_violation(short: list[LogEntry]) -> None:
    with pytest.raises(DivergedError, match="committed is 8"):
        check_same_entries({1: log(0, 8), 2: short}, end_index=8)


def test_replicas_must_have_the_same_records_but_may_have_different_segments(tmp_path: pathlib.Path) -> None:
    directories = {broker: tmp_path / str(broker) for broker in (1, 2)}
    for broker, segments in {1: {0: b"abc", 3: b"def"}, 2: {0: b"abcdef"}}.items():
        directories[broker].mkdir()
        for base, data in segments.items():
            (directories[broker] / f"{base:020}.log").write_bytes(data)
    assert check_same_records("t-0", directories) == 6
    with flipped_byte(directories[2], random.Random(1)), pytest.raises(DivergedError, match="broker 2: 6 bytes"):
        check_same_records("t-0", directories)
    assert not differ("t-0", directories)
    (directories[1] / f"{3:020}.log").write_bytes(b"de")
    assert differ("t-0", directories)


def test_uncommitted_raft_entries_may_differ() -> None:
    check_same_entries({1: log(0, 9), 2: [*log(0, 8), *log(8, 9, term=2)]}, end_index=8)


def test_images_that_differ_are_found() -> None:
    image = MetadataImage.empty()
    check_same_images({1: image, 2: MetadataImage.empty(), 3: image})
    with pytest.raises(DivergedError, match="controllers 1 and 3 differ in configs"):
        check_same_images({1: image, 2: image, 3: dataclasses.replace(image, configs={(2, "t"): {"a": "b"}})})


def test_an_outage_is_the_longest_time_without_an_answer() -> None:
    history = History()
    history.answered_s = [0.9, 1.5, 4.0, 4.5, 9.0]
    assert history.outage_s(since_s=1.0, until_s=5.0) == 2.5
    assert history.outage_s(since_s=4.0, until_s=8.0) == 3.5
    assert history.outage_s(since_s=5.0, until_s=6.0) == 1.0


def test_an_unanswered_read_is_dropped_and_an_unanswered_change_is_unknown() -> None:
    history = History()

    async def record() -> None:
        history.record("t", "c", ReadTopic(), None, 0.0)
        history.record("t", "c", Delete(), None, 0.0)
        history.record("t", "c", Delete(), Answer(), 0.0)
        history.record("t", "c", Delete(), Answer(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 0.0)

    asyncio.run(record())
    assert history.count() == {"ok": 1, "refused": 1, "unknown": 1}
    assert len(history.answered_s) == 2


def test_every_kind_of_fault_is_dealt_in_an_order_that_the_seed_decides() -> None:
    count = sum(fault.weight for fault in FAULTS)
    first, second = (deal(FAULTS, random.Random(7)) for _ in range(2))
    dealt = [next(first).name for _ in range(count)]
    assert dealt == [next(second).name for _ in range(count)]
    assert set(dealt) == {fault.name for fault in FAULTS}


def test_quantiles_and_outages_are_computed_and_printed() -> None:
    assert quantile([3.0], 99) == 3.0
    assert quantile([1.0, 2.0, 3.0], 50) == 2.0
    assert describe_outages([]) == "none"
    assert describe_outages([1.0, 3.0]) == "p50 2.000 s, p99 2.980 s, max 3.000 s of 2"
