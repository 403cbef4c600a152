"""Incremental fetch sessions (KIP-227): requests and answers contain only the partitions that changed.

Kafka's `FetchSession` and `FetchSessionCache`. A session is a list of partitions that outlives a request. The answer
contains a partition if it has records, an error or another change for its reader, or if its high watermark or log start
offset differs from the last answer. A fetch reads only the partitions that may have changed (`reader_watch.py`).
If a client sends another epoch than the next one, it has missed an answer. It is refused and begins a new session.

There are `slots` sessions with at most `PARTITIONS_PER_SLOT` partitions each on average, and `WHOLE_ITEMS_MAX` in one.
The sessions also have a bound in bytes with a share for each user, because clients choose the names of topics and need
no topic of that name. Without room, a client is served without a session. A session is evicted for another one if
nobody used it for `eviction_ms`, or for a larger session if it is older than that. Pure.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import TopicPartition
from klamm_broker.kafka.api import WHOLE_ITEMS_MAX
from klamm_broker.replica.fetch_reader import FetchCursor, PartitionAnswer
from klamm_broker.replica.reader_watch import PartitionKey, ReaderContext, ReaderWatch, Topic, WatchedReader
from klamm_server.runtime.byte_shares import ByteShares, Share, unbounded
from klamm_server.runtime.fair_share import BEGIN, CONTINUE

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
PARTITIONS_PER_SLOT: Final = 1_000
SESSION_BYTES: Final = 1_000
PARTITION_BYTES: Final = 1_000
"""An upper bound of the memory of a partition in a session, in bytes, without the topic's name."""
LOOK_AGAIN_MS: Final = 1_000
"""The shortest time between two searches of all sessions for a smaller one, in milliseconds, because a client without a
session asks for one with every fetch."""
_INT32_MAX: Final = 2**31 - 1

_SessionNotFoundError = EXCEPTIONS[ErrorCode.FETCH_SESSION_ID_NOT_FOUND]
_InvalidEpochError = EXCEPTIONS[ErrorCode.INVALID_FETCH_SESSION_EPOCH]
_TopicIdError = EXCEPTIONS[ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR]


class SessionRequest(NamedTuple):
    """The part of a fetch request that is about its session."""

    session_id: int
    epoch: int
    by_topic_id: bool
    changed: Sequence[tuple[Topic, FetchCursor]]
    """The new partitions, or those with another offset. Without a session, all partitions."""
    forgotten: Sequence[PartitionKey]
    owner: str = ""
    """The owner of the session. Requests of other owners cannot continue or end the session."""
    user: str = ""
    """The user for whom the memory of a new session counts."""


class _Session:
    def __init__(self, session_id: int, owner: str, watch: ReaderWatch, *, by_topic_id: bool, now_ms: int) -> None:
        self.id = session_id
        self.owner = owner
        self.by_topic_id = by_topic_id
        self.next_epoch = 1
        self.created_ms = self.used_ms = now_ms
        self.reader = WatchedReader(watch)
        self.image: object = None
        """The metadata with which the names of the topics were looked up last."""
        self.size_bytes = SESSION_BYTES
        """The memory that the session takes."""
        self.share: Share | None = None
        """The share of the user for whom the memory counts."""

    def take(self, changed: Iterable[tuple[Topic, FetchCursor]]) -> None:
        for topic, wanted in changed:
            if self.reader.take((topic, wanted.topic_partition.partition), wanted):
                self.size_bytes += _partition_bytes(topic)

    def forget(self, forgotten: Iterable[PartitionKey]) -> None:
        for key in forgotten:
            if self.reader.forget(key):
                self.size_bytes -= _partition_bytes(key[0])

    def look_up_names(self, name_of: Callable[[bytes], str], image: object) -> None:
        """Looks up the names of the topics in newer metadata. Since the client sent a topic's id, the topic may have
        been deleted, or may have appeared in the metadata."""
        if not self.by_topic_id or image is self.image:
            return
        self.image = image
        for (topic, partition), watched in self.reader.partitions.items():
            assert isinstance(topic, bytes), topic
            if (name := name_of(topic)) != watched.cursor.topic_partition.topic:
                self.reader.rename(watched, TopicPartition(name, partition))


class FetchContext(NamedTuple):
    """One fetch, with or without a session: the partitions to read, and the selection of answers to send."""

    session: _Session | None
    wanted: Sequence[FetchCursor] = ()
    """The positions to read without a session."""
    reads: ReaderContext | None = None
    """The positions to read with a session."""
    is_first: bool = False
    """True if the session begins with this fetch."""

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id

    @property
    def partition_count(self) -> int:
        """The number of partitions to read."""
        return len(self.wanted) if self.reads is None else self.reads.active_count

    def select(self, answers: Sequence[PartitionAnswer]) -> Sequence[PartitionAnswer]:
        """Returns those of the answers that must be sent, in their order."""
        return answers if self.reads is None else self.reads.select(answers)


class FetchSessions:
    """All sessions of a broker."""

    def __init__(
        self,
        watch: ReaderWatch,
        *,
        slots: int,
        eviction_ms: int,
        rng: random.Random,
        shares: ByteShares | None = None,
    ) -> None:
        self._watch = watch
        self.shares = unbounded() if shares is None else shares
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._rng = rng
        self._sessions: dict[int, _Session] = {}
        """The sessions by id; those unused for longest come first."""
        self._partition_count = 0
        self._look_again_ms = 0
        self._looked_size = 0
        """The size of the new session for which the last search found no session to evict. Until `_look_again_ms`, a
        new session of at most this size can replace only a session that was unused for `eviction_ms`."""

    def __len__(self) -> int:
        """Returns the number of sessions."""
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """The number of partitions in all sessions together."""
        return self._partition_count

    def begin(
        self, request: SessionRequest, name_of: Callable[[bytes], str], image: object, now_ms: int
    ) -> FetchContext:
        """Begins, continues or ends a session. Returns the partitions to read. `name_of` names topics as the newest
        metadata `image` do.

        Raises FetchSessionIdNotFoundError, InvalidFetchSessionEpochError or FetchSessionTopicIdError. Then the request
        has no effect, and the client begins a new session."""
        if request.epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if (ended := self._own(request)) is not None:
                self._drop(ended)
            session = self._create(request, now_ms) if request.epoch == INITIAL_EPOCH else None
            if session is None:
                return FetchContext(None, [wanted for _, wanted in request.changed], is_first=True)
            session.image = image
            return FetchContext(session, reads=ReaderContext(session.reader), is_first=True)
        session = self._continued(request)
        session.next_epoch = 1 if request.epoch == _INT32_MAX else request.epoch + 1
        session.used_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        if problem := self._change(session, request):
            self._drop(session)
            raise _SessionNotFoundError(f"fetch session {session.id} was closed, because {problem}")
        if not session.reader:
            self._drop(session)
            return FetchContext(None)
        session.look_up_names(name_of, image)
        return FetchContext(session, reads=ReaderContext(session.reader))

    def _change(self, session: _Session, request: SessionRequest) -> str:
        """Adds and removes partitions. Returns the reason if there is no room for them and the session must end,
        otherwise ""."""
        former_count, former_bytes = len(session.reader), session.size_bytes
        session.take(request.changed)
        session.forget(request.forgotten)
        self._partition_count += len(session.reader) - former_count
        added_bytes = session.size_bytes - former_bytes
        assert session.share is not None, session.id
        is_admitted = self.shares.admits(session.share.user, added_bytes, CONTINUE)
        self.shares.add(session.share, added_bytes)
        if not is_admitted:
            self.shares.refused_count += 1
            return f"its user holds too much of the memory in {self.shares.setting}"
        if len(session.reader) > WHOLE_ITEMS_MAX:
            return f"it has more than {WHOLE_ITEMS_MAX} partitions"
        is_full = self._partition_count > self._slots * PARTITIONS_PER_SLOT
        return "all sessions together have too many partitions" if is_full else ""

    def withdraw(self, context: FetchContext) -> int:
        """Withdraws a fetch that gets an empty answer. If the session began with it, the session ends, and the client
        begins another one (KIP-219). Returns the client's session id."""
        session = context.session
        if session is None:
            return NO_SESSION
        if context.is_first:
            if self._sessions.get(session.id) is session:
                self._drop(session)
            return NO_SESSION
        return session.id

    def _own(self, request: SessionRequest) -> _Session | None:
        session = self._sessions.get(request.session_id)
        return session if session is not None and session.owner == request.owner else None

    def _continued(self, request: SessionRequest) -> _Session:
        session = self._own(request)
        if session is None:
            raise _SessionNotFoundError(f"fetch session {request.session_id} is unknown or belongs to another client")
        if session.by_topic_id != request.by_topic_id:
            raise _TopicIdError(
                f"fetch session {session.id} expects topics by {'id' if session.by_topic_id else 'name'}"
            )
        if session.next_epoch != request.epoch:
            raise _InvalidEpochError(
                f"the request has epoch {request.epoch} of fetch session {session.id}; expected {session.next_epoch}"
            )
        return session

    def _create(self, request: SessionRequest, now_ms: int) -> _Session | None:
        size = len(request.changed)
        if not size or not self._make_memory(request, now_ms) or not self._evict_for(size, now_ms):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._rng.randrange(1, _INT32_MAX)
        session = self._sessions[session_id] = _Session(
            session_id, request.owner, self._watch, by_topic_id=request.by_topic_id, now_ms=now_ms
        )
        session.take(request.changed)
        self._partition_count += len(session.reader)
        session.share = self.shares.share_of(request.user)
        self.shares.add(session.share, session.size_bytes)
        return session

    def _make_memory(self, request: SessionRequest, now_ms: int) -> bool:
        """Returns True if the user may have the memory of a new session. Evicts unused sessions for it."""
        size_bytes = SESSION_BYTES + sum(_partition_bytes(topic) for topic, _ in request.changed)
        while not self.shares.admits(request.user, size_bytes, BEGIN):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_ms <= self._eviction_ms:
                self.shares.refused_count += 1
                return False
            self._drop(oldest)
        return True

    def _evict_for(self, size: int, now_ms: int) -> bool:
        room = self._slots * PARTITIONS_PER_SLOT - self._partition_count
        if len(self._sessions) < self._slots and size <= room:
            return True
        if (session := self._giving_way(size, size - room, now_ms)) is None:
            return False
        self._drop(session)
        return True

    def _giving_way(self, size: int, freed_min: int, now_ms: int) -> _Session | None:
        """Returns the session to evict for a new session of `size` partitions. It must have at least `freed_min`
        partitions."""
        for session in self._sessions.values():
            if now_ms - session.used_ms <= self._eviction_ms:
                break
            if len(session.reader) >= freed_min:
                return session
        if now_ms < self._look_again_ms and size <= self._looked_size:
            return None
        for session in self._sessions.values():
            if freed_min <= len(session.reader) < size and now_ms - session.created_ms > self._eviction_ms:
                return session
        self._look_again_ms, self._looked_size = now_ms + LOOK_AGAIN_MS, size
        return None

    def _drop(self, session: _Session) -> None:
        del self._sessions[session.id]
        self._partition_count -= len(session.reader)
        session.reader.close()
        assert session.share is not None, session.id
        self.shares.add(session.share, -session.size_bytes)

    def check_invariants(self) -> None:
        """Asserts the sizes and bounds of the sessions, for tests."""
        sizes = [len(session.reader) for session in self._sessions.values()]
        assert all(sizes), "a session follows nothing"
        assert sum(sizes) == self._partition_count, (sizes, self._partition_count)
        assert len(sizes) <= self._slots, (len(sizes), self._slots)
        assert self._partition_count <= self._slots * PARTITIONS_PER_SLOT, self._partition_count
        for session in self._sessions.values():
            size_bytes = SESSION_BYTES + sum(_partition_bytes(topic) for topic, _ in session.reader.partitions)
            assert session.size_bytes == size_bytes, (session.size_bytes, size_bytes)
            session.reader.check_invariants()
        self.shares.check_invariants()
        held_bytes = sum(session.size_bytes for session in self._sessions.values())
        assert self.shares.held_bytes == held_bytes, (self.shares.held_bytes, held_bytes)


def _partition_bytes(topic: Topic) -> int:
    """Returns the memory of a partition of this topic in a session."""
    if isinstance(topic, bytes):
        return PARTITION_BYTES
    return PARTITION_BYTES + (len(topic) if topic.isascii() else 4 * len(topic))
