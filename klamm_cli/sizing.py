"""The size of a topic: how many partitions it needs, and what it takes of disks and network. Pure.

    partitions for producers   target / produce rate of one partition
    partitions for consumers   target in records / rate of one consumer
    partitions                 the larger of both, rounded up to a multiple of the brokers
    disk                       stored rate x retention x replicas x 1.2
    network                    stored rate, times one from producers, times replicas - 1 between brokers, and times the
                               number of groups to consumers

The number of partitions is Jun Rao's max(t/p, t/c) ("How to Choose the Number of Topics/Partitions in a Kafka
Cluster?", Confluent, 2015; Cloudera's "Choosing the number of partitions for a topic" has it too). With a multiple of
the brokers, each broker leads equally many partitions. The disk is that of `docs/how-to/size-a-machine.md`. Its
20 % are for segments, which are deleted as a whole, and for the alert KlammDiskAlmostFull, which fires at 10 %.

Rates are in MB/s of keys, values and headers before compression, with 1 MB = 1,000,000 bytes. The stored rate is after
compression.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

MB: Final = 1_000_000
SPARE: Final = 1.2
"""The share of the disk that a topic needs, compared with its stored bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a topic has to carry, and what one partition and one consumer can do."""

    target_mb_s: float
    record_bytes: float
    """The mean size of a record's key, value and headers."""
    partition_mb_s: float | None = None
    """The produce rate of one partition. With None, producers do not limit the number of partitions."""
    consumer_records_s: float | None = None
    """The rate of one consumer. With None, consumers do not limit the number of partitions."""
    retention_s: float | None = None
    """The time that records are kept. With None, the disk is not computed."""
    replication_factor: int = 3
    group_count: int = 1
    broker_count: int = 1
    stored_ratio: float = 1.0
    """The bytes of a batch on the disk, divided by the bytes of its records before compression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a topic. Disk and network are those of all brokers together."""

    partitions: int
    partitions_for_producers: int
    partitions_for_consumers: int
    records_s: float
    disk_bytes: int | None
    """The bytes of all replicas, with 20 % to spare. None if the retention is not known."""
    network_in_mb_s: float
    """The rate from producers to leaders."""
    network_replication_mb_s: float
    """The rate from leaders to followers."""
    network_out_mb_s: float
    """The rate from leaders to consumers."""


def size_of(need: Need) -> Size:
    """Returns the size of the topic. All rates and sizes of `need` must be more than 0."""
    records_s = need.target_mb_s * MB / need.record_bytes
    for_producers = _quotient(need.target_mb_s, need.partition_mb_s)
    for_consumers = _quotient(records_s, need.consumer_records_s)
    stored_mb_s = need.target_mb_s * need.stored_ratio
    return Size(
        partitions=_multiple(max(for_producers, for_consumers), need.broker_count),
        partitions_for_producers=for_producers,
        partitions_for_consumers=for_consumers,
        records_s=records_s,
        disk_bytes=None
        if need.retention_s is None
        else math.ceil(stored_mb_s * MB * need.retention_s * need.replication_factor * SPARE),
        network_in_mb_s=stored_mb_s,
        network_replication_mb_s=stored_mb_s * (need.replication_factor - 1),
        network_out_mb_s=stored_mb_s * need.group_count,
    )


def _quotient(target: float, rate: float | None) -> int:
    """Returns how many of them reach the target: at least 1."""
    # A measured rate is never exact, so a billionth more must not cost a whole partition.
    return 1 if rate is None else max(1, math.ceil(target / rate * (1 - 1e-9)))


def _multiple(count: int, of: int) -> int:
    return -(-count // of) * of
