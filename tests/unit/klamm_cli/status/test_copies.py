"""Tests how many bytes are copied or read, as computed from log directories."""

from __future__ import annotations

from klamm.admin import LogDirDescription, ReplicaDescription, ScrubDescription
from klamm.model import TopicPartition
from klamm_cli.status.copies import Amount, Copying, bytes_left, bytes_read, current_replicas
from tests.support.status_world import partition

TP, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)


def replica(tp: TopicPartition, size_bytes: int, *, is_future: bool = False) -> ReplicaDescription:
    return ReplicaDescription(
        tp=tp, size_bytes=size_bytes, log_start_offset=100, log_end_offset=200, is_future=is_future, offset_lag=0
    )


def log_dir(*replicas: ReplicaDescription) -> LogDirDescription:
    return LogDirDescription(path="/data", online=True, total_bytes=10**9, usable_bytes=10**9, replicas=replicas)


def scrub(tp: TopicPartition, next_offset: int, *, asked: bool = True) -> ScrubDescription:
    return ScrubDescription(
        tp=tp, asked=asked, running=asked, next_offset=next_offset, end_offset=200, finished_ms=-1, damages=()
    )


def test_each_added_replica_lacks_the_bytes_that_only_the_leader_has() -> None:
    replicas = current_replicas(
        {1: [log_dir(replica(TP, 1000))], 2: [log_dir(replica(TP, 400))], 3: [log_dir(replica(TP, 9, is_future=True))]}
    )
    moving = partition(0, replicas=(2, 3, 1), adding_replicas=(2, 3), removing_replicas=(1,))
    assert bytes_left([(TP, moving)], replicas) == 600 + 1000
    assert bytes_left([(OTHER, moving)], replicas) == 0, "a partition whose leader is unknown counts nothing"


def test_the_most_bytes_that_were_left_are_all_of_them() -> None:
    copying = Copying()
    assert [copying.amount(left) for left in (600, 1000, 250, 0)] == [
        Amount(0, 600),
        Amount(0, 1000),
        Amount(750, 1000),
        Amount(1000, 1000),
    ]


def test_a_scrub_has_read_the_share_of_offsets_that_it_has_passed() -> None:
    replicas = current_replicas({1: [log_dir(replica(TP, 1000), replica(OTHER, 500))], 2: [log_dir(replica(TP, 1000))]})
    asked = {1: [TP, OTHER], 2: [TP]}
    waiting = {1: [scrub(TP, -1), scrub(OTHER, -1)], 2: [scrub(TP, -1)]}
    assert bytes_read(asked, waiting, replicas) == (0, 2500)
    found = {1: [scrub(TP, 140), scrub(OTHER, -1)], 2: [scrub(TP, -1, asked=False)]}
    assert bytes_read(asked, found, replicas) == (400 + 1000, 2500)
