"""The core's settings: every bound and every time-out it knows."""

from __future__ import annotations

from dataclasses import dataclass

from klamm.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftSettings:
    """The same for all replicas of a quorum, as far as the times go. `validate()` before use."""

    election_timeout_ms: int = 400
    """A voter that hears no leader for this long, up to twice as long (a new random time for each), stands for
    election; a leader that hears no majority for this long resigns. Less than Kafka's 1,000 ms, which it lets grow to
    twice that."""
    election_timeout_max_ms: int = 2_000
    """The largest election time-out. It grows while live leaders seem dead (patience.py), and is at least the
    configured one."""
    heartbeat_interval_ms: int = 100
    """How often a leader speaks when it has nothing to say; at most a third of the election time-out."""
    append_bytes_max: int = 1 << 20
    """Entries in one AppendRequest; a single larger entry still goes alone."""
    inflight_messages_max: int = 64
    """Unanswered AppendRequests with entries per replica."""
    inflight_bytes_max: int = 8 << 20
    """Unanswered entries per replica."""
    uncommitted_bytes_max: int = 16 << 20
    """Entries of the leader that are not committed yet; more proposals are refused."""
    reads_max: int = 10_000
    """Reads that wait; more are refused."""
    snapshot_chunk_bytes: int = 256 << 10
    """Bytes of a snapshot in one message; one is under way at a time and replica."""
    retained_entries: int = 1_000
    """Entries kept behind a snapshot, so that a replica that is only a little behind needs no snapshot."""
    idle_no_op_interval_ms: int = 500
    """A leader that appended nothing for this long appends a no-op, so that a quorum that cannot commit is seen
    (KIP-835, metadata.max.idle.interval.ms); 0 turns it off."""
    observer_timeout_ms: int = 3_000
    """A leader forgets an observer that is silent for this long."""
    observers_max: int = 1_000
    """Observers that a leader feeds; more are refused."""
    add_voter_timeout_ms: int = 10_000
    """How long a new voter may take to catch up."""

    def validate(self) -> None:
        """Raises ConfigError."""
        for name in self.__slots__:
            value = getattr(self, name)
            if value < 1 and name not in ("retained_entries", "idle_no_op_interval_ms"):
                raise ConfigError(f"{name}={value} must be at least 1")
        if self.retained_entries < 0 or self.idle_no_op_interval_ms < 0:
            raise ConfigError("retained_entries and idle_no_op_interval_ms must not be negative")
        if 3 * self.heartbeat_interval_ms > self.election_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} must be at most a third of"
                f" election_timeout_ms={self.election_timeout_ms}: one lost heartbeat would start an election"
            )
        if self.observer_timeout_ms < 2 * self.election_timeout_ms:
            raise ConfigError(
                f"observer_timeout_ms={self.observer_timeout_ms} must be at least twice"
                f" election_timeout_ms={self.election_timeout_ms}: otherwise live observers would be dropped"
            )
