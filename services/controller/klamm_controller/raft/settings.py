"""The settings of the Raft core: all its limits and time-outs."""

from __future__ import annotations

from dataclasses import dataclass

from klamm.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftSettings:
    """The settings of one replica. All replicas of a quorum should have the same times. Call `validate()` before
    use."""

    election_timeout_ms: int = 400
    """A voter stands for election if no leader sends a message for this long, up to twice as long. The time is random
    and new for each election. A leader resigns if it has no answers from a majority for this long. Kafka's default is
    1,000 ms, also up to twice as long."""
    election_timeout_max_ms: int = 2_000
    """The largest value to which the election time-out grows, when replicas that seemed dead are alive (patience.py).
    `election_timeout_ms` is the limit if it is more."""
    heartbeat_interval_ms: int = 100
    """How often a leader sends a heartbeat if it has nothing else to send. At most a third of the election time-out."""
    append_bytes_max: int = 1 << 20
    """The most bytes of entries in one AppendRequest. A single larger entry is sent alone."""
    inflight_messages_max: int = 64
    """The most unanswered AppendRequests with entries per replica."""
    inflight_bytes_max: int = 8 << 20
    """The most bytes of unanswered entries per replica."""
    uncommitted_bytes_max: int = 16 << 20
    """The most bytes of uncommitted entries on the leader. It rejects proposals beyond this."""
    reads_max: int = 10_000
    """The most waiting reads. The leader rejects further reads."""
    snapshot_chunk_bytes: int = 256 << 10
    """The bytes of a snapshot in one message. Only one message per replica is in flight at a time."""
    retained_entries: int = 1_000
    """The number of entries that the log keeps before a snapshot's end, so that a replica that is only a little behind
    needs no snapshot."""
    idle_no_op_interval_ms: int = 500
    """A leader that has appended nothing for this long appends a no-op. So a quorum that cannot commit is noticed
    (KIP-835, metadata.max.idle.interval.ms). 0 turns this off."""
    observer_timeout_ms: int = 3_000
    """A leader forgets an observer that does not answer for this long."""
    observers_max: int = 1_000
    """The most observers to which a leader sends. It ignores further ones."""
    add_voter_timeout_ms: int = 10_000
    """How long a new voter may take to catch up, in milliseconds."""

    def validate(self) -> None:
        """Raises ConfigError if a setting is out of range or contradicts another one."""
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
