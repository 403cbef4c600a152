"""How fast our Consumer reads: records/s through `poll`, and the CPU that client and cluster spend on it.

A fresh `klamm up` in its own process is filled first; then one Consumer in this process reads everything from the start
with default settings. Client CPU is this process's, poll thread and event loop thread together.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from bench.servers import Server, klamm_up
from klamm import Admin, Consumer, NewTopic, Producer, TopicPartition

TOPIC = "bench"


def fill(bootstrap: str, count: int, size_bytes: int, partition_count: int, compression: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, partition_count=partition_count)])
    value = bytes(range(256)) * (size_bytes // 256 + 1)
    settings = {"batch.size": 128 * 1024, "linger.ms": 5, "compression.type": compression}
    with Producer({"bootstrap.servers": bootstrap, **settings}) as producer:
        for number in range(count):
            start = number % 256
            producer.send(TOPIC, value[start : start + size_bytes], partition=number % partition_count)


def consume(server: Server, count: int, size_bytes: int, partition_count: int) -> dict[str, float]:
    with Consumer(bootstrap_servers=server.bootstrap, enable_auto_commit=False) as consumer:
        consumer.assign([TopicPartition(TOPIC, number) for number in range(partition_count)])
        consumer.seek_to_beginning()
        client_cpu_s, server_cpu_s = time.process_time(), server.cpu_s()
        started_s = time.perf_counter()
        seen = 0
        while seen < count:
            seen += sum(map(len, consumer.poll(timeout_ms=1_000).values()))
        elapsed_s = time.perf_counter() - started_s
        client_cpu_s, server_cpu_s = time.process_time() - client_cpu_s, server.cpu_s() - server_cpu_s
    gigabytes = count * size_bytes / 1e9
    return {
        "bytes": size_bytes,
        "partitions": partition_count,
        "records_per_s": round(count / elapsed_s),
        "mb_per_s": round(count * size_bytes / elapsed_s / 1e6, 1),
        "client_cpu_s_per_gb": round(client_cpu_s / gigabytes, 2),
        "cluster_cpu_s_per_gb": round(server_cpu_s / gigabytes, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, nargs="+", default=[100, 1_024])
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--compression", default="none")
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of text")
    options = parser.parse_args()
    for size_bytes in options.bytes:
        # The same amount of data whatever the size, so that a run takes about as long.
        count = max(10_000, options.records // max(1, size_bytes // 100))
        with klamm_up() as server:
            fill(server.bootstrap, count, size_bytes, options.partitions, options.compression)
            result = consume(server, count, size_bytes, options.partitions)
        print(json.dumps(result) if options.json else "  ".join(f"{key}={value}" for key, value in result.items()))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
