"""End-to-end latency: from `send` to the record in the consumer's hand, at a steady rate far below the limit.

Run: python bench/latency.py [--rate 1000] [--seconds 10] [--bytes 100]

Producer and consumer are two processes on the broker's machine; they share the monotonic clock, whose reading travels
in the record. The first two seconds are warm-up. `linger.ms` is 0, as it is where latency matters.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import struct
import sys
import time

from bench.servers import klamm_up
from klamm import Admin, Consumer, NewTopic, Producer, TopicPartition

WARM_UP_S = 2
STAMP = struct.Struct(">q")


def produce(bootstrap: str, rate: int, seconds: int, size_bytes: int) -> None:
    """Sends a stamped record at every tick. A late tick is made up for at once."""
    filler = bytes(size_bytes - STAMP.size)
    with Producer(bootstrap_servers=bootstrap, linger_ms=0, acks="all") as producer:
        started = time.monotonic_ns()
        for number in range(rate * seconds):
            wait_ns = started + number * 1_000_000_000 // rate - time.monotonic_ns()
            if wait_ns > 0:
                time.sleep(wait_ns / 1e9)
            producer.send("latency", STAMP.pack(time.monotonic_ns()) + filler, partition=0)


def consume(bootstrap: str, count: int, warm_up: int) -> list[float]:
    """Latencies in ms."""
    latencies = []
    seen = 0
    with Consumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
        consumer.assign([TopicPartition("latency", 0)])
        consumer.seek_to_beginning()
        while seen < count:
            for records in consumer.poll(timeout_ms=1_000).values():
                now = time.monotonic_ns()
                for record in records:
                    seen += 1
                    if seen > warm_up:
                        latencies.append((now - STAMP.unpack_from(record.value)[0]) / 1e6)
    return latencies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    options = parser.parse_args()
    seconds = options.seconds + WARM_UP_S
    with klamm_up() as server:
        with Admin(bootstrap_servers=server.bootstrap) as admin:
            admin.create_topics([NewTopic("latency", partition_count=1)])
        context = multiprocessing.get_context("spawn")
        sender = context.Process(target=produce, args=(server.bootstrap, options.rate, seconds, options.bytes))
        sender.start()
        latencies = consume(server.bootstrap, options.rate * seconds, options.rate * WARM_UP_S)
        sender.join()
    percentiles = statistics.quantiles(latencies, n=1000)
    result = {
        "rate": options.rate,
        "bytes": options.bytes,
        "p50_ms": round(percentiles[499], 2),
        "p99_ms": round(percentiles[989], 2),
        "p999_ms": round(percentiles[998], 2),
        "max_ms": round(max(latencies), 2),
    }
    print(json.dumps(result) if options.json else "  ".join(f"{key}={value}" for key, value in result.items()))
    sys.exit(sender.exitcode)


if __name__ == "__main__":
    main()
