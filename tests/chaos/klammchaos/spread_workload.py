"""The workload "spread". `klamm topics spread` copies a topic with a million records. The command is killed at random
places, and so is the cluster.

The copy must have each record of the source exactly once, with the records of each key in order. A group that moves
must read each record once over both topics.
"""

from __future__ import annotations

import functools
import pathlib
import random
import time
from collections import defaultdict

from klamm import Admin, Consumer, NewTopic
from klamm.errors import KlammError
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.spreading import (
    SpreadProcess,
    check_topic,
    check_values,
    copied_offsets,
    fill,
    read_as_group,
    spreading,
)
from tests.support.violation import require
from tests.support.waiting import wait_until

SOURCE, TARGET, GROUP = "source", "target", "readers"
SOURCE_PARTITIONS, TARGET_PARTITIONS = 6, 16
RECORDS = 1_000_000
AFTER_CUT = 10_000
CLUSTER_SHARE = 4
"""One in this many strikes kills the cluster, too."""
STRIDE = 60_000
"""A command is killed after it has copied at most this many records."""


def run(*, duration_s: float, seed: int, directory: pathlib.Path, only: str = "") -> None:
    """Strikes until the time is over or everything is copied, and then checks the records. `only` is not used. Raises
    AssertionError."""
    with running_cluster(directory) as cluster:
        run_on(cluster, random.Random(seed), duration_s)
        require(cluster.stop() == 0, "klamm up did not end in order")


def run_on(cluster: KlammProcess, rng: random.Random, duration_s: float) -> None:
    """Runs the workload on a cluster."""
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(SOURCE, SOURCE_PARTITIONS)])
    began_s = time.monotonic()
    fill(cluster.bootstrap, SOURCE, 0, RECORDS)
    print(f"wrote {RECORDS:,} records in {time.monotonic() - began_s:.0f} s", flush=True)
    began_s = time.monotonic()
    kills, cluster_kills = strike(cluster, rng, began_s + duration_s)
    finish(cluster.bootstrap)
    seconds = time.monotonic() - began_s
    print(f"copied in {seconds:.0f} s: {kills} kills of the command, {cluster_kills} of the cluster", flush=True)
    check_topic(cluster.bootstrap, TARGET, RECORDS)
    check_group(cluster.bootstrap)


def strike(cluster: KlammProcess, rng: random.Random, until_s: float) -> tuple[int, int]:
    """Kills commands, and sometimes the cluster, until one command has copied everything or the time is over. Returns
    how often it killed each of them."""
    kills = cluster_kills = 0
    while time.monotonic() < until_s:
        least = copied(cluster.bootstrap) + rng.randrange(STRIDE)
        with spreading(cluster.bootstrap, SOURCE, TARGET, "--partitions", TARGET_PARTITIONS) as process:
            wait_until(functools.partial(has_come, process, cluster.bootstrap, least))
            if process.has_ended:
                status, out = process.finish()
                require(status == 0, out)
                break
            if rng.randrange(CLUSTER_SHARE) == 0:
                cluster.kill()
                cluster.start()
                cluster_kills += 1
            process.kill()
            kills += 1
    return kills, cluster_kills


def has_come(process: SpreadProcess, bootstrap: str, least: int) -> bool:
    """True if the command has ended, or if the target has as many records."""
    return process.has_ended or copied(bootstrap) >= least


def finish(bootstrap: str) -> None:
    """Lets a command make the cut, which must succeed."""
    process = SpreadProcess(bootstrap, SOURCE, TARGET, "--partitions", TARGET_PARTITIONS, "--cut")
    wait_until(lambda: process.has_ended, "the command does not end", timeout_s=600)
    status, out = process.finish()
    require(status == 0, out)


def copied(bootstrap: str) -> int:
    """Returns the end offsets of the target, summed up. Returns 0 while the cluster does not answer."""
    try:
        with Admin(bootstrap_servers=bootstrap) as admin:
            return copied_offsets(admin, TARGET)
    except KlammError:
        return 0


def check_group(bootstrap: str) -> None:
    """Moves a group that has read the whole source, and checks what it reads in both topics."""
    by_key = defaultdict[bytes, list[int]](list)
    with Consumer(
        bootstrap_servers=bootstrap, group_id=GROUP, enable_auto_commit=False, auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([SOURCE])
        read_as_group(consumer, by_key, RECORDS)
    fill(bootstrap, TARGET, RECORDS, RECORDS + AFTER_CUT)
    finish(bootstrap)
    with Consumer(
        bootstrap_servers=bootstrap, group_id=GROUP, enable_auto_commit=False, auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([TARGET])
        read_as_group(consumer, by_key, AFTER_CUT)
    check_values(by_key, RECORDS + AFTER_CUT, story=f"group {GROUP}")
