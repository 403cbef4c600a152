"""How many bytes brokers have copied or read, computed from their log directories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from klamm.model import TopicPartition

if TYPE_CHECKING:
    from klamm.admin import LogDirDescription, PartitionDescription, ReplicaDescription, ScrubDescription

LogDirs = Mapping[int, Sequence["LogDirDescription"]]
"""The log directories of each broker, by broker id."""
Replicas = Mapping[tuple[int, TopicPartition], "ReplicaDescription"]
"""The current replicas, by broker id and partition."""


class Amount(NamedTuple):
    """The part of some work that is done."""

    done: float
    total: float


def current_replicas(log_dirs: LogDirs) -> Replicas:
    """Returns the replicas in use. Replicas on their way to another log directory are left out."""
    return {
        (broker_id, replica.tp): replica
        for broker_id, described in log_dirs.items()
        for log_dir in described
        for replica in log_dir.replicas
        if not replica.is_future
    }


def bytes_left(moving: Iterable[tuple[TopicPartition, PartitionDescription]], replicas: Replicas) -> int:
    """Returns how many bytes the replicas that are being added lack."""
    left = 0
    for tp, partition in moving:
        leader = replicas.get((partition.leader, tp))
        if leader is None:
            continue
        for broker_id in partition.adding_replicas:
            added = replicas.get((broker_id, tp))
            left += max(0, leader.size_bytes - (added.size_bytes if added is not None else 0))
    return left


class Copying:
    """The progress of moves. The most bytes that were ever left count as all of them."""

    def __init__(self) -> None:
        self._most = 0

    def amount(self, left: int) -> Amount:
        """Returns the progress while `left` bytes are still to be copied."""
        self._most = max(self._most, left)
        return Amount(self._most - left, self._most)


def bytes_read(
    asked: Mapping[int, Sequence[TopicPartition]],
    found: Mapping[int, Sequence[ScrubDescription]],
    replicas: Replicas,
) -> Amount:
    """Returns how many bytes the brokers have read of the replicas that they were asked to scrub."""
    done = total = 0.0
    scrubs = {(broker_id, scrub.tp): scrub for broker_id, described in found.items() for scrub in described}
    for key in ((broker_id, tp) for broker_id, tps in asked.items() for tp in tps):
        if key in replicas:
            total += replicas[key].size_bytes
            done += replicas[key].size_bytes * (_share_read(scrubs[key], replicas[key]) if key in scrubs else 0)
    return Amount(done, total)


def _share_read(scrub: ScrubDescription, replica: ReplicaDescription) -> float:
    if not scrub.asked:
        return 1
    start, end = replica.log_start_offset, scrub.end_offset
    if scrub.next_offset < 0 or end <= start:
        return 0
    return min(1, max(0, (scrub.next_offset - start) / (end - start)))
