"""The size of one seed's transactions, and its faults."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.sim.kit.options import DrawnOptions, sometimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(DrawnOptions):
    """The options of a seed. Times are in ms unless the name says otherwise. A mean of 0 turns a fault off."""

    id_count: int
    """The number of transactional ids."""
    partition_count: int
    duration_ms: int
    transaction_timeout_ms: int
    abort_check_ms: int
    delay_mean_us: int
    slow_message_probability: float
    slow_message_factor: int
    loss_probability: float
    duplicate_probability: float
    request_timeout_ms: int
    backoff_ms: int
    commit_probability: float
    failover_mean_ms: int
    """The mean time between two owners of the shard that take over."""
    kill_probability: float
    """The probability that the previous owner is dead. Otherwise it does not know that it is no longer the owner."""
    metadata_delay_mean_ms: int
    """The mean time until clients and brokers know the new owner."""
    isolation_mean_ms: int
    """The mean time between two isolations of an owner, which then neither receives nor sends messages for a while."""
    rival_mean_ms: int
    """The mean time between two producers that come with the same transactional id."""
    producer_crash_mean_ms: int
    producer_pause_mean_ms: int
    broker_restart_mean_ms: int
    is_exhausted_probability: float
    """The probability that a transactional id begins with an epoch close to the last."""

    prepared_timeout_ms: int = 2_000

    @classmethod
    def draw(cls, rng: random.Random) -> Options:
        """A world of faults."""

        return cls(
            id_count=rng.randint(1, 3),
            partition_count=rng.randint(1, 4),
            duration_ms=rng.randint(3_000, 8_000),
            transaction_timeout_ms=rng.choice((100, 500, 2_000)),
            abort_check_ms=rng.randint(20, 300),
            delay_mean_us=rng.choice((200, 1_000, 5_000)),
            slow_message_probability=rng.choice((0.0, 0.02, 0.1)),
            slow_message_factor=rng.choice((10, 100)),
            loss_probability=rng.choice((0.0, 0.01, 0.1)),
            duplicate_probability=rng.choice((0.0, 0.02, 0.2)),
            request_timeout_ms=rng.randint(30, 300),
            backoff_ms=rng.randint(1, 50),
            commit_probability=rng.choice((0.5, 0.8, 1.0)),
            failover_mean_ms=sometimes(rng, 0.8, 50, 2_000),
            kill_probability=rng.choice((0.0, 0.5, 1.0)),
            metadata_delay_mean_ms=rng.choice((1, 20, 200)),
            isolation_mean_ms=sometimes(rng, 0.5, 100, 2_000),
            rival_mean_ms=sometimes(rng, 0.6, 100, 3_000),
            producer_crash_mean_ms=sometimes(rng, 0.7, 100, 3_000),
            producer_pause_mean_ms=sometimes(rng, 0.5, 100, 3_000),
            broker_restart_mean_ms=sometimes(rng, 0.5, 100, 3_000),
            is_exhausted_probability=rng.choice((0.0, 0.3)),
        )
