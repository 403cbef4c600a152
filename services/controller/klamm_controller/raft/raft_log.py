"""The log of one replica: the entries since the last snapshot, and the index up to which they are durable.

The whole log is in memory, so no step waits for a read from disk. Snapshots bound its size to some MiB. The store holds
the same entries for the next start.

    snapshot ......... start_index ............. durable_end_index ......... end_index
       (may reach into the log)     | stored and synced |  handed out to be written |

Every change goes to the outbox in the same call, so the memory and the store cannot diverge.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from klamm_controller.raft.effects import HardState, Outbox
from klamm_controller.raft.membership import VoterHistory, VoterSet
from klamm_controller.raft.messages import LogEntry, SnapshotId

START = SnapshotId(end_index=0, term=0)
"""The position before the first entry, where every log begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """The content of a replica's store when the replica starts. The entries begin at or before the snapshot's end."""

    hard_state: HardState
    snapshot: SnapshotId
    """The newest complete snapshot, or START if there is none."""
    snapshot_voters: VoterSet
    """The voters at the snapshot's end. Without a snapshot, the voters with which the log began."""
    entries: tuple[LogEntry, ...]

    @classmethod
    def empty(cls, bootstrap_voters: VoterSet) -> StoredState:
        """Returns the state of a new replica. An observer that knows no voters yet passes an empty set."""
        return cls(
            hard_state=HardState(term=0, voted_for=None),
            snapshot=START,
            snapshot_voters=bootstrap_voters,
            entries=(),
        )


class RaftLog:
    """The entries of one replica, from `start_index` to `end_index`.

    Invariants: start_index <= snapshot.end_index <= end_index; durable_end_index <= end_index; entries are consecutive
    and their terms never decrease."""

    def __init__(self, stored: StoredState, outbox: Outbox) -> None:
        self._outbox = outbox
        self._entries: list[LogEntry] = list(stored.entries)
        self.snapshot = stored.snapshot
        self.start_index = self._entries[0].index if self._entries else stored.snapshot.end_index
        self._start_term: int | None = None
        """The term of the entry before `start_index`, or None if it is unknown because the snapshot ends later."""
        if self.start_index in (0, stored.snapshot.end_index):
            self._start_term = stored.snapshot.term if self.start_index else 0
        self.end_index = self.start_index + len(self._entries)
        self.last_term = self._entries[-1].term if self._entries else stored.snapshot.term
        self.durable_end_index = self.end_index
        self._writes: deque[tuple[int, int]] = deque()
        """(write id, end of the log that the write makes durable) of each write in progress."""
        self.voters = VoterHistory(stored.snapshot.end_index, stored.snapshot_voters)
        self.voters.append(entry for entry in stored.entries if entry.index >= stored.snapshot.end_index)
        assert self.start_index <= stored.snapshot.end_index <= self.end_index, (self.start_index, stored.snapshot)

    def term_before(self, end_index: int) -> int | None:
        """Returns the term of the entry at `end_index - 1`, or None if this log does not have it."""
        offset = end_index - self.start_index
        if offset > 0:
            return self._entries[offset - 1].term if end_index <= self.end_index else None
        if end_index == self.start_index:
            return self._start_term
        return 0 if end_index == 0 else None

    def has_position(self, end_index: int, term: int) -> bool:
        """Returns True if this log has an entry of `term` before `end_index`. Then both logs are equal up to there (log
        matching property)."""
        return self.term_before(end_index) == term

    def is_behind(self, end_index: int, last_term: int) -> bool:
        """Returns True if a log with this end and last term is at least as complete as this log (thesis 3.6.1)."""
        return (last_term, end_index) >= (self.last_term, self.end_index)

    def last_position(self, end_index: int, term: int) -> tuple[int, int]:
        """Returns the last position at or before `end_index` whose term is at most `term`, as (end, term of the entry
        before it).

        In a conflict, the leader and the follower both call this, so each message skips a whole term (KIP-595,
        KIP-279's rule)."""
        limit = min(end_index, self.end_index) - self.start_index
        if limit > 0:
            offset = bisect_right(self._entries, term, hi=limit, key=_term)
            if offset > 0:
                return self.start_index + offset, self._entries[offset - 1].term
        if end_index >= self.start_index and self._start_term is not None and self._start_term <= term:
            return self.start_index, self._start_term
        return 0, 0

    def entries_from(self, base_index: int, max_bytes: int) -> tuple[LogEntry, ...]:
        """Returns about `max_bytes` of entries from `base_index` on, but at least one entry if the log has one."""
        assert base_index >= self.start_index, (base_index, self.start_index)
        first = base_index - self.start_index
        last, size_bytes = first, 0
        while last < len(self._entries):
            size_bytes += self._entries[last].size_bytes
            if size_bytes > max_bytes and last > first:
                break
            last += 1
        return tuple(self._entries[first:last])

    def between(self, base_index: int, end_index: int) -> Sequence[LogEntry]:
        """Returns the entries from `base_index` to before `end_index`, which must be in the log."""
        assert self.start_index <= base_index <= end_index <= self.end_index, (base_index, end_index)
        return self._entries[base_index - self.start_index : end_index - self.start_index]

    def append(self, entries: tuple[LogEntry, ...]) -> None:
        """Appends entries at the end of the log."""
        assert entries[0].index == self.end_index, (entries[0].index, self.end_index)
        assert entries[0].term >= self.last_term, (entries[0].term, self.last_term)
        self._entries.extend(entries)
        self.end_index += len(entries)
        self.last_term = entries[-1].term
        self.voters.append(entries)
        self._outbox.write_entries(entries)
        self._expect_write()

    def cut_end(self, end_index: int) -> None:
        """Drops the entries from `end_index` on, because another leader's entries replace them."""
        assert self.snapshot.end_index <= end_index < self.end_index, (self.snapshot, end_index, self.end_index)
        del self._entries[end_index - self.start_index :]
        self.end_index = end_index
        last_term = self.term_before(end_index)
        assert last_term is not None, end_index
        self.last_term = last_term
        self.voters.cut_end(end_index)
        self._forget_durable(end_index)
        self._outbox.cut_log_end(end_index)
        self._expect_write()

    def compact(self, snapshot: SnapshotId, retained_entries: int) -> None:
        """Sets the newest stored snapshot. Drops all entries that it covers, except the last `retained_entries`."""
        assert self.has_position(snapshot.end_index, snapshot.term), (snapshot, self.end_index)
        self.snapshot = snapshot
        start_index = snapshot.end_index - retained_entries
        if start_index > self.start_index:
            self._start_term = self.term_before(start_index)
            del self._entries[: start_index - self.start_index]
            self.start_index = start_index
            self.voters.cut_start(start_index)
            self._outbox.cut_log_start(start_index)

    def install(self, snapshot: SnapshotId, voters: VoterSet) -> None:
        """Replaces the log with a snapshot. Keeps the entries after it if they continue it (thesis 5.1)."""
        if self.has_position(snapshot.end_index, snapshot.term):
            self.compact(snapshot, 0)
            return
        if self.end_index > self.start_index:
            self._outbox.cut_log_end(self.start_index)
        self._entries.clear()
        self.snapshot = snapshot
        self.start_index = self.end_index = snapshot.end_index
        self._start_term = self.last_term = snapshot.term
        self.voters = VoterHistory(snapshot.end_index, voters)
        self._writes = deque((write, 0) for write, _ in self._writes)
        self.durable_end_index = 0
        self._expect_write()

    def on_persisted(self, persist_id: int) -> None:
        """Advances `durable_end_index` after all writes up to `persist_id` are durable."""
        while self._writes and self._writes[0][0] <= persist_id:
            self.durable_end_index = max(self.durable_end_index, self._writes.popleft()[1])

    def check_invariants(self) -> None:
        """Asserts the class's invariants. Checks only the ends of the log, so it is cheap enough for every step."""
        assert self.start_index <= self.snapshot.end_index <= self.end_index, (self.start_index, self.snapshot)
        assert self.end_index == self.start_index + len(self._entries), (self.start_index, self.end_index)
        assert self.durable_end_index <= self.end_index, (self.durable_end_index, self.end_index)
        if self._entries:
            assert self._entries[0].index == self.start_index, (self._entries[0], self.start_index)
            assert self._entries[-1].index == self.end_index - 1, (self._entries[-1], self.end_index)
            assert self._entries[-1].term == self.last_term >= self._entries[0].term, self.last_term
        assert all(end <= self.end_index for _, end in self._writes), (self._writes, self.end_index)
        assert self.voters.latest_end_index <= self.end_index, (self.voters.latest_end_index, self.end_index)

    def _expect_write(self) -> None:
        """Notes that the next write makes the log durable up to its current end."""
        if self._writes and self._writes[-1][0] == self._outbox.next_id:
            self._writes.pop()
        self._writes.append((self._outbox.next_id, self.end_index))

    def _forget_durable(self, end_index: int) -> None:
        """Limits the writes in progress to `end_index`, because they may contain entries that are cut off.

        Suppose that entries 8 and 9 are replaced while they are being written. Without this limit, the new entries 8
        and 9 would count as durable when the old write ends."""
        self.durable_end_index = min(self.durable_end_index, end_index)
        self._writes = deque((write, min(end, end_index)) for write, end in self._writes)


def _term(entry: LogEntry) -> int:
    return entry.term
