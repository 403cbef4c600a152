"""The effects of a step, and the outbox, which holds back messages until their writes are durable.

A promise is a vote or an acknowledgement. The outbox keeps it until a LogPersisted event covers all earlier writes. So
the shell cannot send a promise too early.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from klamm.errors import ErrorCode
from klamm_controller.raft.messages import LogEntry, Message, ReplicaKey, SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class HardState:
    """The state that a replica must never lose (Raft's currentTerm and votedFor)."""

    term: int
    voted_for: ReplicaKey | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSnapshotChunk:
    """A part of a snapshot that a leader sends. A part at position 0 replaces all parts that were received before."""

    snapshot: SnapshotId
    voters: bytes
    position: int
    data: bytes
    is_last: bool
    """True for the last part. The snapshot is then complete and replaces the stored one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Persist:
    """One atomic write. The store must apply the fields in their order. Ids grow by one."""

    persist_id: int
    hard_state: HardState | None
    """The new hard state, or None to keep the stored one."""
    snapshot_chunk: WriteSnapshotChunk | None
    log_end_index: int | None
    """Entries from this index on are to be deleted, or None to delete none."""
    entries: tuple[LogEntry, ...]
    """Consecutive entries to append after the stored ones."""
    log_start_index: int | None
    """Entries below this index are to be deleted, or None to delete none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSnapshotChunk:
    """A request to read up to `max_bytes` of a stored snapshot for a replica. The owner returns them as
    SnapshotChunkLoaded."""

    receiver: ReplicaKey
    snapshot: SnapshotId
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """The current term and its leader, or None if this replica does not know the leader."""

    term: int
    leader: ReplicaKey | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The reply to a request whose entries are in the leader's log.

    The entries are committed when `Effects.committed` contains them. They are lost if an entry of another term has one
    of these indexes. If this replica stops leading before it sees either, the outcome is unknown."""

    request_id: int
    base_index: int
    end_index: int
    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReady:
    """The reply to a Read. The entries in `Effects.committed` up to this step contain all entries that had committed
    before the Read."""

    request_id: int
    end_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """The reply to a request that had no effect. `leader` is the replica to ask instead, or None if it is unknown."""

    request_id: int
    code: ErrorCode
    leader: ReplicaKey | None


Reply = Appended | ReadReady | Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """The effects of one step. raft/__init__.py lists how and in which order to carry them out."""

    persist: Persist | None
    messages: tuple[Message, ...]
    restore: SnapshotId | None
    """The state machine's state is to be replaced with this stored, complete snapshot, before `committed` is
    applied."""
    committed: tuple[LogEntry, ...]
    """The entries that have committed now, in order, each exactly once per start or restore."""
    replies: tuple[Reply, ...]
    load_chunks: tuple[LoadSnapshotChunk, ...]
    leadership: Leadership | None
    """The new term and leader, or None if neither has changed."""


class Outbox:
    """Collects the effects of a step.

    Invariant: `_held` is ordered by the write that its messages wait for, and no write in it is durable."""

    def __init__(self) -> None:
        self.issued_id = 0
        """The id of the newest write in an Effects."""
        self.durable_id = 0
        """All writes up to this id are durable."""
        self.restore: SnapshotId | None = None
        self.leadership: Leadership | None = None
        self.committed: list[LogEntry] = []
        self.replies: list[Reply] = []
        self.load_chunks: list[LoadSnapshotChunk] = []
        self._messages: list[Message] = []
        self._promises: list[Message] = []
        self._held: deque[tuple[int, Message]] = deque()
        self._hard_state: HardState | None = None
        self._snapshot_chunk: WriteSnapshotChunk | None = None
        self._log_end_index: int | None = None
        self._entries: list[LogEntry] = []
        self._log_start_index: int | None = None
        self._must_write = False

    @property
    def next_id(self) -> int:
        """The id of the write that will contain the changes of the current step."""
        return self.issued_id + 1

    def send(self, message: Message) -> None:
        """Sends the message at the end of this step. It must promise nothing that a crash could lose."""
        self._messages.append(message)

    def promise(self, message: Message) -> None:
        """Sends the message once all writes up to the end of this step are durable."""
        self._promises.append(message)

    def write_hard_state(self, state: HardState) -> None:
        self._hard_state = state
        self._must_write = True

    def write_entries(self, entries: tuple[LogEntry, ...]) -> None:
        self._entries.extend(entries)
        self._must_write = True

    def cut_log_end(self, end_index: int) -> None:
        assert not self._entries, "a step that appends cuts first"
        self._log_end_index = end_index
        self._must_write = True

    def cut_log_start(self, start_index: int) -> None:
        self._log_start_index = start_index
        self._must_write = True

    def write_snapshot_chunk(self, chunk: WriteSnapshotChunk) -> None:
        self._snapshot_chunk = chunk
        self._must_write = True

    def on_persisted(self, persist_id: int) -> None:
        """Sends the promises that waited for writes up to `persist_id`."""
        assert persist_id <= self.issued_id, (persist_id, self.issued_id)
        self.durable_id = max(self.durable_id, persist_id)
        while self._held and self._held[0][0] <= self.durable_id:
            self._messages.append(self._held.popleft()[1])

    def collect(self) -> Effects:
        """Returns the effects of the step, and clears them for the next step."""
        persist = self._take_persist() if self._must_write else None
        if self._promises:
            self._hold_promises()
        effects = Effects(
            persist=persist,
            messages=tuple(self._messages),
            restore=self.restore,
            committed=tuple(self.committed),
            replies=tuple(self.replies),
            load_chunks=tuple(self.load_chunks),
            leadership=self.leadership,
        )
        self._messages.clear()
        self.restore = self.leadership = None
        self.committed.clear()
        self.replies.clear()
        self.load_chunks.clear()
        return effects

    def check_invariants(self) -> None:
        """Asserts the class's invariant."""
        assert self.durable_id <= self.issued_id, (self.durable_id, self.issued_id)
        if self._held:
            assert self.durable_id < self._held[0][0] <= self._held[-1][0] <= self.issued_id, self._held

    def _take_persist(self) -> Persist:
        self.issued_id += 1
        persist = Persist(
            persist_id=self.issued_id,
            hard_state=self._hard_state,
            snapshot_chunk=self._snapshot_chunk,
            log_end_index=self._log_end_index,
            entries=tuple(self._entries),
            log_start_index=self._log_start_index,
        )
        self._hard_state = self._snapshot_chunk = self._log_end_index = self._log_start_index = None
        self._entries.clear()
        self._must_write = False
        return persist

    def _hold_promises(self) -> None:
        if self.durable_id == self.issued_id:
            self._messages.extend(self._promises)
        else:
            self._held.extend((self.issued_id, message) for message in self._promises)
        self._promises.clear()
