"""A disk with a write-ahead log: the writes that it received, those that are synced, and those that survive a crash.

Writes are atomic and ordered, and one sync at a time covers all that came before it, as in a RocksDB with group
commit. A crash keeps what was synced and any prefix of the rest; the write after that prefix is torn, and recovery
cuts it off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from klamm_controller.raft.effects import HardState, Persist
from klamm_controller.raft.membership import VoterSet
from klamm_controller.raft.messages import LogEntry, SnapshotId
from klamm_controller.raft.raft_log import START, StoredState
from tests.sim.kit.world import World
from tests.sim.raftsim.options import Options


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSnapshot:
    """A snapshot of the local state machine to write."""

    snapshot: SnapshotId
    voters: bytes
    data: bytes


class Image:
    """The contents of a store."""

    def __init__(self, voters: VoterSet) -> None:
        self.hard_state = HardState(term=0, voted_for=None)
        self.snapshot = START
        self.snapshot_voters = voters.to_bytes()
        self.snapshot_data = b""
        self.partial = b""
        self.start_index = 0
        self.entries: list[LogEntry] = []

    @property
    def end_index(self) -> int:
        return self.start_index + len(self.entries)

    def term_before(self, end_index: int) -> int | None:
        """Returns the term of the entry before that end, or None if it is unknown."""
        offset = end_index - self.start_index
        if 0 < offset <= len(self.entries):
            return self.entries[offset - 1].term
        if end_index == self.snapshot.end_index:
            return self.snapshot.term
        return 0 if end_index == 0 else None

    def has_position(self, end_index: int, term: int) -> bool:
        """True if the entry before that end has that term, in the log or as the end of the snapshot."""
        return self.term_before(end_index) == term

    def covers(self, end_index: int, term: int) -> bool:
        """True if all entries up to that position are there, in the log or within the snapshot."""
        return end_index <= self.snapshot.end_index or self.has_position(end_index, term)

    def apply(self, write: Persist | StateSnapshot) -> None:
        """Applies a write as the store does, with the duties that the raft package's docstring lists."""
        if isinstance(write, StateSnapshot):
            self._replace_snapshot(write.snapshot, write.voters, write.data)
            return
        if write.hard_state is not None:
            self.hard_state = write.hard_state
        if write.snapshot_chunk is not None:
            chunk = write.snapshot_chunk
            if chunk.position == 0:
                self.partial = b""
            assert chunk.position == len(self.partial), (chunk.position, len(self.partial))
            self.partial += chunk.data
            if chunk.is_last:
                self._replace_snapshot(chunk.snapshot, chunk.voters, self.partial)
                self.partial = b""
        if write.log_end_index is not None:
            del self.entries[max(0, write.log_end_index - self.start_index) :]
        if not self.entries:
            self.start_index = self.snapshot.end_index
        if write.entries:
            assert write.entries[0].index == self.end_index, (write.entries[0], self.end_index)
            self.entries.extend(write.entries)
        if write.log_start_index is not None:
            del self.entries[: write.log_start_index - self.start_index]
            self.start_index = write.log_start_index

    def copy(self) -> Image:
        twin = Image(VoterSet())
        for name, value in vars(self).items():
            setattr(twin, name, value)
        twin.entries = list(self.entries)
        return twin

    def stored(self) -> StoredState:
        """Returns the state that a replica finds when it starts. An incomplete snapshot is dropped."""
        self.partial = b""
        return StoredState(
            hard_state=self.hard_state,
            snapshot=self.snapshot,
            snapshot_voters=VoterSet.from_bytes(self.snapshot_voters),
            entries=tuple(self.entries),
        )

    def _replace_snapshot(self, snapshot: SnapshotId, voters: bytes, data: bytes) -> None:
        if snapshot.end_index > self.snapshot.end_index:
            self.snapshot, self.snapshot_voters, self.snapshot_data = snapshot, voters, data


class Disk:
    """The disk of one replica."""

    def __init__(self, world: World, options: Options, voters: VoterSet) -> None:
        self.durable = Image(voters)
        self.written = Image(voters)
        self.is_faulty = True
        self._world = world
        self._options = options
        self._pending: list[Persist | StateSnapshot] = []
        self._syncing = 0
        """The number of pending writes that the present sync covers."""
        self._crashes = 0
        self.durable_persist_id = 0
        """The newest Persist of this start that is durable."""
        self._on_synced: Callable[[list[Persist | StateSnapshot]], None] | None = None
        self._on_failure: Callable[[], None] | None = None

    def open(
        self, on_synced: Callable[[list[Persist | StateSnapshot]], None], on_failure: Callable[[], None]
    ) -> StoredState:
        """Recovers what is there."""
        self._on_synced, self._on_failure = on_synced, on_failure
        self.written = self.durable.copy()
        self.durable_persist_id = 0
        return self.durable.stored()

    def write(self, write: Persist | StateSnapshot) -> None:
        """Accepts a write that is in the written image already. `on_synced` follows."""
        self._pending.append(write)
        if not self._syncing:
            self._sync()

    def crash(self, kept_count: int | None = None) -> int:
        """Fails the power. Returns the number of writes that were not synced but survived."""
        if kept_count is None:
            kept_count = self._world.rng.randint(0, len(self._pending)) if self._pending else 0
        self.finish(kept_count)
        self._pending = []
        self._syncing = 0
        self._crashes += 1
        return kept_count

    def finish(self, write_count: int) -> list[Persist | StateSnapshot]:
        """Makes the oldest writes durable, and returns them."""
        done = self._pending[:write_count]
        del self._pending[:write_count]
        for write in done:
            self.durable.apply(write)
            if isinstance(write, Persist):
                self.durable_persist_id = write.persist_id
        return done

    def _sync(self) -> None:
        self._syncing = len(self._pending)
        self._world.after(self._sync_us(), self._synced, self._crashes)

    def _synced(self, crashes: int) -> None:
        if crashes != self._crashes:
            return
        self._world.event_count += 1
        assert self._on_synced is not None
        assert self._on_failure is not None
        if self._fails():
            self._on_failure()
            return
        done = self.finish(self._syncing)
        self._syncing = 0
        if self._pending:
            self._sync()
        self._on_synced(done)

    def _fails(self) -> bool:
        probability = self._options.disk_failure_probability if self.is_faulty else 0.0
        return probability > 0 and self._world.rng.random() < probability

    def _sync_us(self) -> int:
        options, random = self._options, self._world.rng.random
        if not self.is_faulty:
            return 200
        duration_us = int(options.fsync_mean_us * (0.3 + 1.4 * random()))
        if options.slow_fsync_probability and random() < options.slow_fsync_probability:
            duration_us *= 30
        return duration_us
