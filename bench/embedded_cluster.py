"""Measures how long a test waits for its cluster, `klamm.testing.EmbeddedCluster`.

The times are those from the constructor to the first acknowledged record, of `restart`, and of `close`.

    python bench/embedded_cluster.py [--rounds 20] [--brokers 1]

Each round is a new cluster in a new directory. A warm-up round before them does not count.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from klamm import Producer
from klamm.testing import EmbeddedCluster

SEND_TIMEOUT_S = 60


def seconds(function: Callable[[], object]) -> float:
    """Returns the duration of a call, in seconds."""
    began_s = time.perf_counter()
    function()
    return time.perf_counter() - began_s


def one_round(brokers: int) -> dict[str, float]:
    """The seconds of each step."""
    began_s = time.perf_counter()
    cluster = EmbeddedCluster(brokers=brokers)
    try:
        cluster.start()
        ready_s = time.perf_counter() - began_s
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("records", b"value").result(SEND_TIMEOUT_S)
            record_s = time.perf_counter() - began_s
        return {"ready": ready_s, "first record": record_s, "restart": seconds(cluster.restart)}
    finally:
        cluster.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--brokers", type=int, default=1)
    options = parser.parse_args()
    one_round(options.brokers)
    rounds = [one_round(options.brokers) for _ in range(options.rounds)]
    for step in rounds[0]:
        took = [each[step] for each in rounds]
        p95 = statistics.quantiles(took, n=20)[-1]
        print(f"{step:14} p50 {statistics.median(took):.2f} s, p95 {p95:.2f} s")


if __name__ == "__main__":
    main()
