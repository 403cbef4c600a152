"""How long a coordinator takes to load committed offsets, and what they cost in memory.

Run: python bench/coordinator.py [--offsets 1000000] [--spread 1,50]

One controller, one broker and one coordinator with the shipped defaults, each a process of its own. Offsets of groups
without members are committed, 1,000 a request, to groups of one shard, or of all 50; each group commits for 100
partitions. Then the coordinator is killed (SIGKILL), two times: once it is started again on the same node, once another
one is started that has never seen the shards. "load" is the time of the slowest shard by the coordinator's own log,
which is replay only; "first answer" is from the signal to the first OffsetFetch that is answered, process start,
detection and all. Memory is what the process has more than one that owns empty shards, per offset.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import signal
import time
from collections.abc import Iterator

import uvloop

from bench.cluster import Cluster, ServerProcess, cluster, wait_until
from klamm import NewTopic
from klamm.cluster.client import KlammClient
from klamm.config import ClientConfig
from klamm.consumer.offsets.offset_store import OUTSIDE_THE_GROUP, OffsetStore
from klamm.errors import KlammError
from klamm.model import TopicPartition, coordinator_shard
from klamm.offsets import OffsetAndMetadata

TOPIC = "orders"
PARTITIONS = 100
SHARDS = 50
GROUPS_AT_ONCE = 16
_LOADED = re.compile(r"shard=__consumer_offsets-\d+ loaded .* offsets=(\d+) .*took_ms=(\d+)")


def group_ids(count: int, spread: int) -> list[str]:
    """The ids of `count` groups, all in the first shard or in any."""

    def candidates() -> Iterator[str]:
        number = 0
        while True:
            name = f"consumers-of-orders-{number}"
            if spread > 1 or coordinator_shard(name, SHARDS) == 0:
                yield name
            number += 1

    names = candidates()
    return [next(names) for _ in range(count)]


async def commit(bootstrap: str, names: list[str]) -> float:
    """Seconds that it took."""
    client = KlammClient(ClientConfig.parse({"bootstrap_servers": bootstrap}))
    offsets = {TopicPartition(TOPIC, number): OffsetAndMetadata(123_456_789 + number) for number in range(PARTITIONS)}
    waiting = iter(names)

    async def work() -> None:
        for name in waiting:
            await OffsetStore(client, name).commit(offsets, lambda: OUTSIDE_THE_GROUP, timeout_ms=60_000)

    started_s = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(GROUPS_AT_ONCE)))
    took_s = time.perf_counter() - started_s
    await client.close()
    return took_s


async def answered(bootstrap: str, names: list[str]) -> None:
    """Waits until it has read the offsets of all these groups."""
    client = KlammClient(ClientConfig.parse({"bootstrap_servers": bootstrap}))
    for name in names:
        found = await OffsetStore(client, name).fetch(None, timeout_ms=120_000)
        assert len(found) == PARTITIONS, (name, len(found))
    await client.close()


def loads(member: ServerProcess, since: int) -> list[tuple[int, int]]:
    """(offsets, ms) of each shard that it logged to have loaded."""
    text = member.log_path.read_bytes()[since:].decode()
    return [(int(offsets), int(took_ms)) for offsets, took_ms in _LOADED.findall(text)]


def owns_all(running: Cluster, member: ServerProcess, since: int) -> None:
    wait_until(lambda: len(loads(member, since)) >= SHARDS, f"{member.spec.name} has loaded {SHARDS} shards")


def measure(offset_count: int, spread: int) -> None:
    where = "one shard" if spread == 1 else f"{SHARDS} shards"
    with cluster(controllers=1, brokers=1, coordinators=2, log_level="INFO") as running:
        first, second = running.coordinators.values()
        with running.admin() as admin:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
        second.end(signal.SIGKILL)
        names = group_ids(offset_count // PARTITIONS, spread)
        uvloop.run(commit(running.bootstrap, names[:1]))
        owns_all(running, first, 0)
        empty_mb = first.rss_mb()
        took_s = uvloop.run(commit(running.bootstrap, names))
        print(f"{offset_count:,} offsets of {len(names):,} groups in {where}: committed in {took_s:.1f} s", flush=True)
        for name, started in (("same node", first), ("another node", second)):
            killed = first
            since = started.log_path.stat().st_size
            killed.end(signal.SIGKILL)
            at_s = time.perf_counter()
            started.start()
            uvloop.run(answered(running.bootstrap, names[-SHARDS:]))
            answer_s = time.perf_counter() - at_s
            owns_all(running, started, since)
            found = loads(started, since)
            assert sum(offsets for offsets, _ in found) == offset_count, found
            bytes_each = (started.rss_mb() - empty_mb) * 1e6 / offset_count
            print(
                f"  killed, started on {name}: load {max(ms for _, ms in found) / 1e3:.2f} s,"
                f" all answered after {answer_s:.2f} s, {bytes_each:.0f} bytes an offset",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--offsets", type=int, default=1_000_000)
    parser.add_argument("--spread", default="1,50", help="in how many shards: 1, 50 or both")
    options = parser.parse_args()
    for spread in options.spread.split(","):
        try:
            measure(options.offsets, int(spread))
        except KlammError as error:
            raise SystemExit(f"failed: {error}") from error


if __name__ == "__main__":
    main()
