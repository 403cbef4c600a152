"""The size of one seed's quorum, and its faults."""

from __future__ import annotations

import random
from dataclasses import dataclass

from klamm_controller.raft.settings import RaftSettings
from tests.sim.kit.options import DrawnOptions, sometimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(DrawnOptions):
    """The options of a seed. Times are in ms unless the name says otherwise. A mean of 0 turns a fault off."""

    voter_count: int
    spare_count: int
    """The number of nodes that begin as observers, and may become voters."""
    duration_ms: int
    election_timeout_ms: int
    retained_entries: int
    snapshot_every_entries: int
    snapshot_chunk_bytes: int
    inflight_messages_max: int
    append_bytes_max: int
    idle_no_op_interval_ms: int
    delay_mean_us: int
    slow_link_probability: float
    """The probability that a message takes `slow_link_factor` times as long, which also reorders messages."""
    slow_link_factor: int
    loss_probability: float
    duplicate_probability: float
    fsync_mean_us: int
    slow_fsync_probability: float
    disk_failure_probability: float
    clock_skew: float
    """The largest deviation of a clock's rate from 1."""
    propose_mean_ms: int
    read_mean_ms: int
    stray_probability: float
    """The probability that a request is sent to any node instead of a node that claims to be the leader."""
    crash_mean_ms: int
    crash_all_probability: float
    downtime_mean_ms: int
    partition_mean_ms: int
    one_way_probability: float
    pause_mean_ms: int
    transfer_mean_ms: int
    membership_mean_ms: int
    wipe_mean_ms: int
    crash_leader_probability: float
    """The probability that a crash hits a leader. Terms are short then, and their entries half replicated."""
    voter_move_mean_ms: int
    """The mean time between two voters that are reached elsewhere from then on."""
    voter_wipe_mean_ms: int
    """The mean time between two voters that lose their disk. There are never more of them than every set that may be in
    force survives."""

    @classmethod
    def draw(cls, rng: random.Random) -> Options:
        """A world of faults."""

        def maybe(probability: float, high: float) -> float:
            return round(rng.random() * high, 3) if rng.random() < probability else 0.0

        return cls(
            voter_count=rng.choice((1, 2, 3, 3, 3, 3, 4, 5, 5)),
            spare_count=rng.choice((0, 0, 1, 1, 2, 3)),
            duration_ms=rng.choice((3_000, 5_000, 8_000, 15_000)),
            election_timeout_ms=rng.choice((60, 120, 250)),
            retained_entries=rng.choice((0, 0, 3, 20)),
            snapshot_every_entries=rng.choice((0, 5, 20, 100)),
            snapshot_chunk_bytes=rng.choice((16, 40, 200)),
            inflight_messages_max=rng.choice((1, 2, 8, 64)),
            append_bytes_max=rng.choice((64, 200, 2_000, 100_000)),
            idle_no_op_interval_ms=rng.choice((0, 0, 200)),
            delay_mean_us=rng.choice((300, 1_000, 5_000, 15_000)),
            slow_link_probability=maybe(0.5, 0.15),
            slow_link_factor=rng.choice((5, 20, 100)),
            loss_probability=maybe(0.5, 0.25),
            duplicate_probability=maybe(0.4, 0.2),
            fsync_mean_us=rng.choice((200, 2_000, 10_000)),
            slow_fsync_probability=maybe(0.3, 0.1),
            disk_failure_probability=maybe(0.2, 0.01),
            clock_skew=maybe(0.3, 0.1),
            propose_mean_ms=rng.choice((2, 5, 15, 60)),
            read_mean_ms=rng.choice((5, 20, 80)),
            stray_probability=maybe(0.5, 0.5),
            crash_mean_ms=sometimes(rng, 0.7, 60, 1_500),
            crash_all_probability=maybe(0.3, 0.3),
            downtime_mean_ms=rng.choice((10, 100, 600)),
            partition_mean_ms=sometimes(rng, 0.6, 100, 1_500),
            one_way_probability=rng.choice((0.0, 0.5, 1.0)),
            pause_mean_ms=sometimes(rng, 0.3, 200, 1_500),
            transfer_mean_ms=sometimes(rng, 0.4, 100, 1_500),
            membership_mean_ms=sometimes(rng, 0.6, 50, 800),
            wipe_mean_ms=sometimes(rng, 0.3, 300, 2_000),
            crash_leader_probability=rng.choice((0.0, 0.0, 0.5, 1.0)),
            voter_move_mean_ms=sometimes(rng, 0.2, 100, 1_500),
            voter_wipe_mean_ms=sometimes(rng, 0.3, 200, 2_000),
        )

    @property
    def election_timeout_max_ms(self) -> int:
        """Room for a quorum that has been hasty to become patient."""
        return 4 * self.election_timeout_ms

    def settings(self) -> RaftSettings:
        """The replicas' settings."""
        return RaftSettings(
            election_timeout_ms=self.election_timeout_ms,
            election_timeout_max_ms=self.election_timeout_max_ms,
            heartbeat_interval_ms=self.election_timeout_ms // 5,
            append_bytes_max=self.append_bytes_max,
            inflight_messages_max=self.inflight_messages_max,
            inflight_bytes_max=8 * self.append_bytes_max,
            uncommitted_bytes_max=20_000,
            snapshot_chunk_bytes=self.snapshot_chunk_bytes,
            retained_entries=self.retained_entries,
            idle_no_op_interval_ms=self.idle_no_op_interval_ms,
            observer_timeout_ms=4 * self.election_timeout_ms,
            add_voter_timeout_ms=10 * self.election_timeout_ms,
        )
