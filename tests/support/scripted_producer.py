"""A synchronous Producer whose brokers answer as a test says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from klamm.producer import Producer
from tests.support.scripted_broker import ScriptedCluster

SHORT_MS = 2_000
"""A time-out that a test waits for, in milliseconds. Every answer comes within it, also on a busy machine."""


@contextlib.contextmanager
def producing(
    partition_count: int = 1, *, cluster: ScriptedCluster | None = None, **settings: Any
) -> Iterator[tuple[Producer, ScriptedCluster]]:
    """Yields a Producer with no linger and short retry pauses, and its cluster with the topic "t"."""
    cluster = cluster or ScriptedCluster()
    if partition_count:
        cluster.create_topic("t", partition_count)
    settings = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_max_ms": 10, **settings}
    with cluster.serve_in_thread(), Producer(bootstrap_servers=cluster.bootstrap, **settings) as producer:
        yield producer, cluster


def numbered(count: int) -> list[bytes]:
    """Returns the numbers below `count`, as values of records."""
    return [str(number).encode() for number in range(count)]
