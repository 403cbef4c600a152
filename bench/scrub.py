"""How fast closed segments are read to find damage, what that costs, and how long records wait for a leader's repair.

Run: python bench/scrub.py [--megabytes 300] [--repairs 5]

One controller and three brokers. Broker 1 has a cold topic by itself, and leads a partition of three replicas to which
a producer sends a record every 5 ms, acks=all. The cold topic is read at the default rate and then without a bound: how
long that takes, what CPU it takes beside the stream, and how long the stream's records wait, with what they waited
before. Then a byte of a closed segment of the stream's leader is flipped on its disk and the log read: the longest wait
of a record in that time is the outage of the repair, in which the leader hands over.
"""

from __future__ import annotations

import argparse
import pathlib
import random
import statistics
import sys
import time
from typing import Any

from bench.cluster import Cluster, cluster, describe, wait_until, wait_whole
from bench.failover import TOPIC, Stream, distribution
from klamm import Admin, NewTopic, Producer, TopicPartition
from klamm.admin import DamageState, ElectionType

COLD = "cold"
BATCH_BYTES = 16_384
VALUE_BYTES = 1_000
CALM_S = 5.0
FLUSHED_S = 3.0
"""After which closed segments are on disk."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=300, help="of the cold topic")
    parser.add_argument("--repairs", type=int, default=5)
    options = parser.parse_args()
    runs: tuple[tuple[str, dict[str, Any]], ...] = (
        ("at the default rate", {}),
        ("without a bound", {"log_scrub_bytes_per_second": str(10**12)}),
    )
    for name, settings in runs:
        with cluster(log_segment_bytes=str(16 << 20), log_scrub_interval_ms="-1", **settings) as running:
            measure_reading(running, name, options.megabytes)
            if settings:
                measure_repairs(running, options.repairs)
    return 0


def measure_reading(running: Cluster, name: str, megabytes: int) -> None:
    with running.admin() as admin:
        stream = begin(running, admin)
        admin.create_topics([NewTopic(COLD, assignments={0: (1,)})])
        fill(running, COLD, megabytes)
        time.sleep(FLUSHED_S)
        broker = running.brokers[1]
        cpu_s, began_s = broker.cpu_s(), time.perf_counter()
        time.sleep(CALM_S)
        calm_cpu = (broker.cpu_s() - cpu_s) / (time.perf_counter() - began_s)
        cpu_s, scrub_s = broker.cpu_s(), time.perf_counter()
        scrub(admin, COLD, 1)
        ended_s = time.perf_counter()
        took_s = ended_s - scrub_s
        busy_cpu = (broker.cpu_s() - cpu_s) / took_s
        stream.stop()
        segments = sorted((log_dir(running, 1) / f"{COLD}-0").glob("*.log"))[:-1]
        read_mb = sum(path.stat().st_size for path in segments) / 1e6
        print(
            f"{name}: {read_mb:.0f} MB in {took_s:.1f} s, {read_mb / took_s:.1f} MB/s; broker CPU {busy_cpu:.0%} of a"
            f" core, {calm_cpu:.0%} before"
        )
        print(
            f"  a record waits {waits(stream, began_s, scrub_s)}; meanwhile {waits(stream, scrub_s, ended_s)}",
            flush=True,
        )


def waits(stream: Stream, since_s: float, until_s: float) -> str:
    return distribution([one.wait_s * 1e3 for one in stream.sent if since_s <= one.at_s < until_s])


def begin(running: Cluster, admin: Admin) -> Stream:
    """The stream's partition, led by broker 1, has closed segments."""
    admin.create_topics([NewTopic(TOPIC, assignments={0: (1, 2, 3)}, configs={"segment.bytes": str(1 << 20)})])
    wait_whole(admin, TOPIC)
    fill(running, TOPIC, 10)
    stream = Stream(running.bootstrap, 1)
    stream.start()
    wait_until(lambda: len(stream.sent) > 1, "a record")
    time.sleep(2)
    return stream


def fill(running: Cluster, topic: str, megabytes: int) -> None:
    value = random.Random(1).randbytes(VALUE_BYTES)
    with Producer(bootstrap_servers=running.bootstrap, batch_size=BATCH_BYTES, acks="all") as producer:
        for _ in range(megabytes * 10**6 // VALUE_BYTES):
            producer.send(topic, value, partition=0)
        producer.flush()


def scrub(admin: Admin, topic: str, broker_id: int) -> None:
    name = TopicPartition(topic, 0)
    admin.scrub_logs([name], [broker_id])
    wait_until(
        lambda: not any(one.asked for one in admin.describe_scrubs([name], [broker_id])[broker_id]), "all is read"
    )


def log_dir(running: Cluster, broker_id: int) -> pathlib.Path:
    return pathlib.Path(running.brokers[broker_id].spec.settings["log.dirs"])


def measure_repairs(running: Cluster, count: int) -> None:
    rng = random.Random(2)
    with running.admin() as admin:
        stream = Stream(running.bootstrap, 1)
        stream.start()
        wait_until(lambda: len(stream.sent) > 1, "a record")
        longest_ms, took_ms = [], []
        for _ in range(count):
            wait_whole(admin, TOPIC)
            admin.elect_leaders(ElectionType.PREFERRED)
            time.sleep(1)
            leader = describe(admin, TOPIC)[TopicPartition(TOPIC, 0)].leader
            path = rng.choice(sorted((log_dir(running, leader) / f"{TOPIC}-0").glob("*.log"))[:-1])
            flip(path, rng)
            struck_s = time.perf_counter()
            scrub(admin, TOPIC, leader)
            took_ms.append((time.perf_counter() - struck_s) * 1e3)
            time.sleep(1)
            (found,) = admin.describe_scrubs([TopicPartition(TOPIC, 0)], [leader])[leader]
            assert all(damage.state is DamageState.REPAIRED for damage in found.damages), found
            longest_ms.append(stream.longest_wait_ms(struck_s, time.perf_counter() - 0.5))
        stream.stop()
        print(
            f"{count} leaders repaired, in {statistics.median(took_ms):.0f} ms: longest wait {distribution(longest_ms)}"
        )


def flip(path: pathlib.Path, rng: random.Random) -> None:
    with path.open("r+b") as file:
        at = rng.randrange(path.stat().st_size)
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


if __name__ == "__main__":
    sys.exit(main())
