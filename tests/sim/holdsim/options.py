"""What a seed draws."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.sim.kit.options import DrawnOptions, sometimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(DrawnOptions):
    """Intervals are means in ms, and 0 means never."""

    group_count: int
    retention_ms: int
    retention_bytes: int
    hold_max_ms: int
    hold_max_bytes: int
    commit_interval_ms: int
    reset_probability: float
    """How often a commit goes back to an earlier offset."""
    elsewhere_probability: float
    """How often a commit is for a partition that no hold is about."""
    group_deletion_ms: int
    expiry_ms: int
    """The interval at which the clocks jump, so that offsets expire."""
    config_change_ms: int
    delete_records_ms: int
    leader_change_ms: int
    shard_move_ms: int
    freeze_ms: int
    coordinator_crash_ms: int
    metadata_delay_ms: int
    """The mean time after which a server learns a change of the metadata."""
    delay_mean_us: int
    slow_message_probability: float
    slow_message_factor: int
    loss_probability: float

    @classmethod
    def draw(cls, rng: random.Random) -> Options:
        retention_ms = rng.choice((-1, 2_000, 5_000))
        retention_bytes = rng.choice((-1, 2_000)) if retention_ms >= 0 else 2_000
        return cls(
            group_count=rng.randint(1, 4),
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            hold_max_ms=rng.choice((-1, 12_000, 30_000)),
            hold_max_bytes=rng.choice((-1, 8_000)),
            commit_interval_ms=rng.randint(100, 2_000),
            reset_probability=rng.choice((0, 0.05, 0.3)),
            elsewhere_probability=rng.choice((0, 0.1, 0.5)),
            group_deletion_ms=sometimes(rng, 0.5, 2_000, 10_000),
            expiry_ms=sometimes(rng, 0.4, 3_000, 15_000),
            config_change_ms=sometimes(rng, 0.5, 2_000, 10_000),
            delete_records_ms=sometimes(rng, 0.2, 5_000, 20_000),
            leader_change_ms=sometimes(rng, 0.6, 1_000, 10_000),
            shard_move_ms=sometimes(rng, 0.6, 1_000, 10_000),
            freeze_ms=sometimes(rng, 0.6, 1_000, 8_000),
            coordinator_crash_ms=sometimes(rng, 0.4, 2_000, 15_000),
            metadata_delay_ms=rng.choice((1, 50, 3_000)),
            delay_mean_us=rng.choice((500, 20_000)),
            slow_message_probability=rng.choice((0, 0.1)),
            slow_message_factor=50,
            loss_probability=rng.choice((0, 0.05)),
        )
