"""What a coordinator's cache on disk could save: a shard's offsets loaded from the bytes of its log, and from RocksDB.

Run: python bench/shard_load.py [--offsets 1000000]

No processes, no network. "replay" is the product's: batches of 500 offsets, as many commits at once make them, and of
one, as a quiet group's commits and compaction leave them. The cache is the leanest that could be: one value per group,
made by `marshal`, nothing to check it against the log and nothing to read behind it; half of its writing is making the
offsets up. Medians of three.
"""

from __future__ import annotations

import argparse
import itertools
import marshal
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator

from rocksdict import Options, Rdict, WriteBatch

from klamm.model import TopicPartition
from klamm.records import encode_batch, iter_headers
from klamm_coordinator.group_shard.replayer import GroupReplayer
from klamm_coordinator.group_shard.state import GroupShardState
from klamm_coordinator.records.schemas import OffsetCommitKey, OffsetCommitValue, encode_key, encode_value

PARTITIONS = 100
GROUPS_PER_WRITE = 1_000
RUNS = 3


def offsets(count: int) -> Iterator[tuple[str, TopicPartition, bytes]]:
    for number in range(count):
        tp = TopicPartition("orders", number % PARTITIONS)
        value = encode_value(OffsetCommitValue(123_456_789 + number, 5, "", 1_700_000_000_000))
        assert value is not None
        yield f"consumers-of-orders-{number // PARTITIONS}", tp, value


def log_of(count: int, per_batch: int) -> bytes:
    records = ((0, encode_key(OffsetCommitKey(group, *tp)), value, ()) for group, tp, value in offsets(count))
    return b"".join(encode_batch(chunk) for chunk in iter(lambda: list(itertools.islice(records, per_batch)), []))


def replay(log: bytes) -> int:
    state = GroupShardState()
    replayer = GroupReplayer(state)
    for position, header in iter_headers(log):
        replayer.replay_batch(log, position, header)
    return state.offsets.count()


def write_cache(directory: str, count: int) -> int:
    cache = Rdict(directory, Options(raw_mode=True))
    batch = WriteBatch(raw_mode=True)
    for group, each in itertools.groupby(offsets(count), key=lambda offset: offset[0]):
        batch.put(group.encode(), marshal.dumps([(*tp, value) for _, tp, value in each]))
        if batch.len() == GROUPS_PER_WRITE:
            cache.write(batch)
            batch = WriteBatch(raw_mode=True)
    cache.write(batch)
    cache.flush()
    cache.close()
    return count


def read_cache(directory: str) -> int:
    cache = Rdict(directory, Options(raw_mode=True))
    partitions: dict[tuple[str, int], TopicPartition] = {}
    loaded: dict[str, dict[TopicPartition, bytes]] = {}
    for group, encoded in cache.items():
        mine = loaded[group.decode()] = {}
        for topic, number, value in marshal.loads(encoded):
            tp = partitions.get((topic, number))
            if tp is None:
                tp = partitions[topic, number] = TopicPartition(topic, number)
            mine[tp] = value
    cache.close()
    return sum(map(len, loaded.values()))


def measure(what: str, count: int, call: Callable[[], int]) -> None:
    times = []
    for _ in range(RUNS):
        started_s = time.process_time()
        assert call() == count, what
        times.append(time.process_time() - started_s)
    print(f"{what}: {statistics.median(times):.2f} CPU seconds", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--offsets", type=int, default=1_000_000)
    count = parser.parse_args().offsets
    print(f"{count:,} offsets")
    for per_batch in (500, 1):
        log = log_of(count, per_batch)
        measure(f"replay of {len(log) / 1e6:.0f} MB, {per_batch} a batch", count, lambda: replay(log))  # noqa: B023
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as scratch:
        directory = str(pathlib.Path(scratch, "cache"))
        measure("cache, written", count, lambda: write_cache(directory, count))
        measure("cache, loaded", count, lambda: read_cache(directory))


if __name__ == "__main__":
    main()
