"""How long the groups of a killed coordinator are without one, and that their members notice nothing else.

Run: python bench/coordinator_failover.py [--groups 100] [--members 10] [--kills 8]

One controller, one broker and two coordinators with the shipped defaults, each a process of its own; the members are
in the script's process (tests/support/group_members.py): each heartbeats every 3 s as a consumer does, and one member
of each group commits five times a second. A group's unavailability is from the last commit acknowledged before SIGKILL
to the first one after it, so a fifth of a second of it is the rate of the commits. In the end every member must have
the one assignment and generation that it had before the first kill, and the offset that was acknowledged last.

Between kills the killed coordinator is started again and gets its shards back, which is measured likewise.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import statistics
import time

import uvloop

from bench.cluster import Cluster, cluster
from klamm import NewTopic
from tests.support.group_members import Group

TOPIC = "stream"
PARTITIONS = 10
COMMIT_INTERVAL_S = 0.2
SETTLE_S = 3.0


async def strike(running: Cluster, groups: list[Group], victim: int) -> tuple[list[float], list[float]]:
    """Kills a coordinator and starts it again. Returns two lists of times without a commit, in milliseconds. The first
    one is for each group that the coordinator owned, the second one for each group when the shards moved back."""
    hit = [group for group in groups if group.owner == victim]
    assert hit, victim
    struck_s = time.perf_counter()
    running.coordinators[victim].end(signal.SIGKILL)
    await asyncio.sleep(SETTLE_S)
    gaps = [group.commits.gap_ms(struck_s) for group in hit]
    spared = max(group.commits.longest_gap_ms(struck_s) for group in groups if group not in hit)
    print(
        f"  kill of coordinator {victim}, {len(hit)} of {len(groups)} groups: {distribution(gaps)};"
        f" the others' longest {spared:.0f} ms",
        flush=True,
    )
    started_s = time.perf_counter()
    running.coordinators[victim].start()
    await asyncio.sleep(2 * SETTLE_S)
    return gaps, [group.commits.longest_gap_ms(started_s) for group in groups if group.owner == victim]


def distribution(gaps_ms: list[float]) -> str:
    p99 = statistics.quantiles(gaps_ms, n=100, method="inclusive")[98]
    return f"p50 {statistics.median(gaps_ms):.0f} ms, p99 {p99:.0f} ms, max {max(gaps_ms):.0f} ms"


async def measure(running: Cluster, options: argparse.Namespace) -> None:
    names = [f"group-{number}" for number in range(options.groups)]
    groups = [Group(running.bootstrap, name, TOPIC, options.members, COMMIT_INTERVAL_S) for name in names]
    started_s = time.perf_counter()
    for group in groups:
        group.start()
    await asyncio.gather(*(group.wait_settled() for group in groups))
    joined_s = time.perf_counter() - started_s
    print(f"{options.groups} groups of {options.members} members, joined after {joined_s:.1f} s", flush=True)
    for group in groups:
        group.start_commits()
    await asyncio.sleep(SETTLE_S)
    calm_s = time.perf_counter()
    await asyncio.sleep(SETTLE_S)
    print(f"  without a kill: {distribution([group.commits.longest_gap_ms(calm_s) for group in groups])}", flush=True)
    before = [group.history() for group in groups]
    gaps: list[float] = []
    moves: list[float] = []
    for kill in range(options.kills):
        killed, moved = await strike(running, groups, 1 + kill % 2)
        gaps += killed
        moves += moved
    for group in groups:
        group.check_alive()
    assert [group.history() for group in groups] == before, "a member got another assignment"
    for group in groups:
        promised = group.commits.offset
        assert await group.stored_offset() >= promised, group.group_id
        await group.close()
    print(f"{options.kills} kills, {len(gaps)} outages of groups: {distribution(gaps)}")
    print(f"moved back to the coordinator that came again: longest {distribution(moves)}")
    print("no member got another assignment, no acknowledged commit is lost")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--kills", type=int, default=8)
    options = parser.parse_args()
    with cluster(controllers=1, brokers=1, coordinators=2, log_level="INFO") as running:
        with running.admin() as admin:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
        uvloop.run(measure(running, options))


if __name__ == "__main__":
    main()
