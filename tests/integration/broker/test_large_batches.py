"""Tests a broker's memory and the turns of its event loop with batches that are large when they are decompressed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from klamm.model import MAX_TIMESTAMP
from klamm.records import CompressionType, RawRecord, encode_batch
from tests.clients.test_wrong_headers import Topic
from tests.support.kafka_wire import KafkaWire
from tests.support.klamm_process import KlammProcess
from tests.support.turn_meter import turns_in
from tests.support.waiting import patience, wait_until

MIB = 1 << 20
LARGE = 200 * MIB
GROWTH_MAX = 130 * MIB
"""Threads and their first work take some of it. A batch that is held in memory takes at least LARGE."""
TURN_MAX_MS = 200
NOW = 1_700_000_000_000


@pytest.fixture
def metered(tmp_path: Path) -> Iterator[KlammProcess]:
    program = (sys.executable, "-m", "tests.support.turn_meter", str(tmp_path / "turns"))
    cluster = KlammProcess(tmp_path / "cluster", {"log.cleaner.backoff.ms": "50"}, program=program)
    cluster.start()
    yield cluster
    cluster.stop()
    assert [turn for turn in turns_in(tmp_path / "turns") if turn.ms > TURN_MAX_MS] == []


class Peak:
    """The growth of a process's memory since the last reset."""

    def __init__(self, pid: int) -> None:
        self._process = Path("/proc") / str(pid)
        (self._process / "clear_refs").write_text("5")  # the peak becomes the present size
        self._before = self._bytes("VmRSS")

    def growth(self) -> int:
        return self._bytes("VmHWM") - self._before

    def _bytes(self, name: str) -> int:
        lines = (self._process / "status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def batch_of(keys: list[bytes], values: list[bytes], compression: CompressionType) -> bytes:
    rows: list[RawRecord] = [
        (NOW + at, key, value, ()) for at, (key, value) in enumerate(zip(keys, values, strict=True))
    ]
    return encode_batch(rows, compression=compression)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("shape", ["one record", "small records"])
def test_a_large_batch_takes_little_memory(metered: KlammProcess, shape: str) -> None:
    if shape == "one record":
        keys, values = [b"a", b"b"], [bytes(LARGE), b"v"]
    else:
        count = LARGE // 1_000
        keys, values = [b"%d" % (number % 1_000) for number in range(count)], [bytes(1_000)] * count
    batch = batch_of(keys, values, CompressionType.ZSTD)
    other = batch_of([b"x"], [b"y"], CompressionType.NONE)
    filler = batch_of([b"filler"], [bytes(700_000)], CompressionType.NONE)
    last_ms = NOW + len(keys) - 1
    with KafkaWire(metered.kafka_bootstrap, timeout_s=patience()) as wire:
        # Compaction is waited for below. Other work of the first requests is not measured.
        Topic(wire, "warm", {"compression.type": "gzip"}).produce(other)
        peak = Peak(metered.pid)
        plain = Topic(wire, "plain")
        compacted = Topic(
            wire,
            "compacted",
            {"cleanup.policy": "compact", "segment.bytes": str(MIB), "min.cleanable.dirty.ratio": "0.0001"},
        )
        recompressed = Topic(wire, "recompressed", {"compression.type": "gzip", "max.message.bytes": str(8 * MIB)})
        limited = Topic(wire, "limited", {"max.decompressed.message.bytes": "500"})
        for topic in (plain, compacted, recompressed):
            assert topic.produce(batch).error_code == ErrorCode.none
            assert topic.offset(last_ms) == topic.offset(MAX_TIMESTAMP) == len(keys) - 1
        assert limited.produce(batch).error_code == ErrorCode.invalid_record
        for one in (other, filler, filler, filler):
            assert compacted.produce(one).error_code == ErrorCode.none
        checkpoint = metered.data_dir / "broker" / "cleaner-offset-checkpoint"
        cleaned = f"compacted 0 {len(keys) + 3}"
        wait_until(lambda: checkpoint.exists() and cleaned in checkpoint.read_text())
        assert peak.growth() < GROWTH_MAX
