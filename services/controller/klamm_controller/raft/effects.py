"""What a node wants done, and the outbox that holds back what is not durable yet.

A promise (a vote, an acknowledgement) leaves only when everything handed out for writing before it is durable: the
outbox keeps it until the LogPersisted that covers it, so a shell cannot send one too early.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from klamm.errors import ErrorCode
from klamm_controller.raft.messages import LogEntry, Message, ReplicaKey, SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class HardState:
    """What a replica must never forget (Raft's currentTerm and votedFor)."""

    term: int
    voted_for: ReplicaKey | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSnapshotChunk:
    """A part of a snapshot that is being received. Position 0 replaces whatever part of one there is."""

    snapshot: SnapshotId
    voters: bytes
    position: int
    data: bytes
    is_last: bool
    """Whether the snapshot is whole with this chunk, and replaces the stored one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Persist:
    """One atomic write, to be applied in the order of the fields; ids grow by one."""

    persist_id: int
    hard_state: HardState | None
    """Replaces the stored one."""
    snapshot_chunk: WriteSnapshotChunk | None
    log_end_index: int | None
    """Drop the stored entries from this index on."""
    entries: tuple[LogEntry, ...]
    """Consecutive; the first follows what is stored."""
    log_start_index: int | None
    """Drop the stored entries below this index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSnapshotChunk:
    """Read `max_bytes` of a stored snapshot for a replica. The owner returns them as SnapshotChunkLoaded."""

    receiver: ReplicaKey
    snapshot: SnapshotId
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """The leader, as far as this replica knows."""

    term: int
    leader: ReplicaKey | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The request's entries are in the leader's log. They are committed when `Effects.committed` contains them.

    An entry of another term at one of these indexes means that they are lost. When this replica stops leading before it
    sees either, the outcome is unknown."""

    request_id: int
    base_index: int
    end_index: int
    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReady:
    """The entries in `Effects.committed` up to this step contain all entries before the Read."""

    request_id: int
    end_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """Nothing was done. `leader` is whom to ask instead, where that is known."""

    request_id: int
    code: ErrorCode
    leader: ReplicaKey | None


Reply = Appended | ReadReady | Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """The outcome of one step; raft/__init__.py says what to do with it, in which order."""

    persist: Persist | None
    messages: tuple[Message, ...]
    restore: SnapshotId | None
    """Replace the state machine's state by this snapshot, which is stored and whole, before `committed`."""
    committed: tuple[LogEntry, ...]
    """The entries that are certain now, in order, each exactly once per start or restore."""
    replies: tuple[Reply, ...]
    load_chunks: tuple[LoadSnapshotChunk, ...]
    leadership: Leadership | None
    """Set when the term or the leader changed."""


class Outbox:
    """Collects the effects of a step.

    Invariant: `_held` is ordered by the write that its messages wait for, and no write in it is durable."""

    def __init__(self) -> None:
        self.issued_id = 0
        """The newest write handed out."""
        self.durable_id = 0
        """Every write up to this one is durable."""
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
        """The write that will contain what this step asks to be written."""
        return self.issued_id + 1

    def send(self, message: Message) -> None:
        """Sends the message at once: it promises nothing."""
        self._messages.append(message)

    def promise(self, message: Message) -> None:
        """Sends the message after everything is durable that was to be written up to the end of this step."""
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
        """Lets go of the promises that waited for it."""
        assert persist_id <= self.issued_id, (persist_id, self.issued_id)
        self.durable_id = max(self.durable_id, persist_id)
        while self._held and self._held[0][0] <= self.durable_id:
            self._messages.append(self._held.popleft()[1])

    def collect(self) -> Effects:
        """The step's effects; begins the next step's."""
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
        """See the class."""
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
