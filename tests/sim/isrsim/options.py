"""The size of one seed's partition, and its faults."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.sim.kit.options import DrawnOptions, sometimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(DrawnOptions):
    """The options of a seed. Times are in ms unless the name says otherwise. A mean of 0 turns a fault off."""

    broker_count: int
    replica_count: int
    """The number of replicas at first. A reassignment may change it."""
    min_isr: int
    duration_ms: int
    lag_time_max_ms: int
    session_timeout_ms: int
    heartbeat_ms: int
    request_timeout_ms: int
    """The time-out of a fetch or an AlterPartition. Its sender then opens another stream or retries."""
    fetch_wait_ms: int
    fetch_records_max: int
    backoff_ms: int
    delay_mean_us: int
    slow_message_probability: float
    slow_message_factor: int
    loss_probability: float
    metadata_delay_mean_us: int
    """The additional delay of the metadata stream compared with other messages."""
    producer_count: int
    produce_mean_ms: int
    """The mean time between two records of a producer."""
    lost_acknowledgement_probability: float
    read_mean_ms: int
    crash_mean_ms: int
    """The mean time between two crashes by kill -9: the log is whole, the checkpoint of the high watermark is old."""
    lossy_crash_probability: float
    """The probability that a crash also loses the tail of the log (a power failure). One replica always keeps
    everything."""
    shutdown_probability: float
    """The probability that a crash is a controlled shutdown instead."""
    downtime_mean_ms: int
    partition_mean_ms: int
    """The mean time between two cuts of links, one way or both."""
    pause_mean_ms: int
    reassignment_mean_ms: int
    """The mean time between two moves to other brokers, cancellations or elections of the preferred leader."""
    controller_mean_ms: int
    """The mean time between two controllers that take over from another."""
    partitions_per_turn: int
    """The number of partitions that a controller handles before it does something else. 0 for all of them."""
    turn_ms: int
    """The time from one turn to the next."""
    full_disk_mean_ms: int
    """The mean time between two disks that are full for a while."""
    sync_mean_ms: int = 0
    """The mean time of a sync, if no record is acknowledged before it is synced (`flush.messages=1`). 0 for none."""

    @classmethod
    def draw(cls, rng: random.Random) -> Options:
        """A world of faults."""

        broker_count = rng.choice((2, 3, 3, 4, 4, 5))
        replica_count = min(broker_count, rng.choice((2, 3, 3, 3, 4, 5)))
        min_isr = rng.randint(1, replica_count)
        session_timeout_ms = rng.randint(100, 1_500)
        delay_mean_us = rng.choice((200, 1_000, 5_000))
        return cls(
            broker_count=broker_count,
            replica_count=replica_count,
            min_isr=min_isr,
            duration_ms=rng.randint(5_000, 15_000),
            lag_time_max_ms=rng.randint(50, 2_000),
            session_timeout_ms=session_timeout_ms,
            heartbeat_ms=max(10, session_timeout_ms // rng.randint(3, 6)),
            request_timeout_ms=rng.randint(30, 800),
            fetch_wait_ms=rng.randint(5, 300),
            fetch_records_max=rng.choice((1, 2, 10, 1_000)),
            backoff_ms=rng.randint(2, 100),
            delay_mean_us=delay_mean_us,
            slow_message_probability=rng.choice((0.0, 0.01, 0.1)),
            slow_message_factor=rng.choice((5, 50)),
            loss_probability=rng.choice((0.0, 0.0, 0.01, 0.05)),
            metadata_delay_mean_us=rng.choice((0, 2_000, 50_000)),
            producer_count=rng.randint(1, 3),
            produce_mean_ms=rng.randint(8, 80),
            lost_acknowledgement_probability=rng.choice((0.0, 0.1, 0.5)),
            read_mean_ms=rng.randint(5, 50),
            crash_mean_ms=sometimes(rng, 0.8, 200, 3_000),
            lossy_crash_probability=rng.choice((0.0, 0.3, 0.9)),
            shutdown_probability=rng.choice((0.0, 0.2, 0.8)),
            downtime_mean_ms=rng.randint(10, 1_500),
            partition_mean_ms=sometimes(rng, 0.6, 200, 3_000),
            pause_mean_ms=sometimes(rng, 0.4, 200, 3_000),
            reassignment_mean_ms=sometimes(rng, 0.4, 200, 3_000),
            controller_mean_ms=sometimes(rng, 0.3, 500, 5_000),
            partitions_per_turn=rng.choice((0, 0, 1, 2)),
            turn_ms=rng.choice((1, 1, 20, 200)),
            full_disk_mean_ms=sometimes(rng, 0.3, 200, 3_000),
        )

    @classmethod
    def draw_synced(cls, rng: random.Random) -> Options:
        """A world where power fails anywhere at any time, but every acknowledged record is synced."""
        return replace(
            cls.draw(rng),
            sync_mean_ms=rng.choice((1, 5, 50, 400)),
            crash_mean_ms=rng.randint(200, 2_000),
            lossy_crash_probability=rng.choice((0.5, 1.0)),
        )
