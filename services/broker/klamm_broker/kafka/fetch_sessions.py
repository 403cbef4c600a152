"""Incremental fetch sessions (KIP-227): requests and answers contain only the partitions that changed.

Kafka's `FetchSession` and `FetchSessionCache`. A session is a list of partitions that outlives a request. The answer
contains a partition if it has records, an error or another change for its reader, or if its high watermark or log start
offset differs from the last answer. Partitions with records move to the end of the list, so that no partition starves.
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
from klamm_broker.kafka.requests import WHOLE_ITEMS_MAX
from klamm_broker.replica.fetch_reader import FetchCursor, PartitionAnswer
from klamm_server.runtime.byte_shares import ByteShares, Share, unbounded
from klamm_server.runtime.fair_share import BEGIN, CONTINUE

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
PARTITIONS_PER_SLOT: Final = 1_000
SESSION_BYTES: Final = 1_000
PARTITION_BYTES: Final = 500
"""An upper bound of the memory of a partition in a session, in bytes, without the topic's name."""
LOOK_AGAIN_MS: Final = 1_000
"""The shortest time between two searches of all sessions for a smaller one, in milliseconds, because a client without a
session asks for one with every fetch."""
_INT32_MAX: Final = 2**31 - 1

_SessionNotFoundError = EXCEPTIONS[ErrorCode.FETCH_SESSION_ID_NOT_FOUND]
_InvalidEpochError = EXCEPTIONS[ErrorCode.INVALID_FETCH_SESSION_EPOCH]
_TopicIdError = EXCEPTIONS[ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR]

Topic = bytes | str
"""A topic as the client names it, by id or by name."""
_Key = tuple[Topic, int]


class SessionRequest(NamedTuple):
    """The part of a fetch request that is about its session."""

    session_id: int
    epoch: int
    by_topic_id: bool
    changed: Sequence[tuple[Topic, FetchCursor]]
    """The new partitions, or those with another offset. Without a session, all partitions."""
    forgotten: Sequence[_Key]
    owner: str = ""
    """The owner of the session. Requests of other owners cannot continue or end the session."""
    user: str = ""
    """The user for whom the memory of a new session counts."""


class _Followed:
    """A partition of a session, with the offsets that were last sent to its reader."""

    __slots__ = ("high_watermark", "log_start_offset", "wanted")

    def __init__(self, wanted: FetchCursor) -> None:
        self.wanted = wanted
        # No partition has this value, so the first answer contains all partitions.
        self.high_watermark = self.log_start_offset = -2

    def has_news(self, answer: PartitionAnswer) -> bool:
        """Returns True if the answer has changes for the reader, and remembers the answer as sent."""
        if answer.error_code:
            # When the error is over, the next answer must contain the partition.
            self.high_watermark = -2
            return True
        told = (self.high_watermark, self.log_start_offset)
        self.high_watermark, self.log_start_offset = answer.high_watermark, answer.log_start_offset
        return (
            bool(answer.records_bytes)
            or told != (answer.high_watermark, answer.log_start_offset)
            or answer.diverging is not None
            or answer.preferred_read_replica >= 0
        )


class _Session:
    def __init__(self, session_id: int, owner: str, *, by_topic_id: bool, now_ms: int) -> None:
        self.id = session_id
        self.owner = owner
        self.by_topic_id = by_topic_id
        self.next_epoch = 1
        self.created_ms = self.used_ms = now_ms
        self.followed: dict[_Key, _Followed] = {}
        self.size_bytes = SESSION_BYTES
        """The memory that the session takes."""
        self.share: Share | None = None
        """The share of the user for whom the memory counts."""

    def take(self, changed: Iterable[tuple[Topic, FetchCursor]]) -> None:
        for topic, wanted in changed:
            key = (topic, wanted.topic_partition.partition)
            known = self.followed.get(key)
            if known is None:
                self.followed[key] = _Followed(wanted)
                self.size_bytes += _partition_bytes(topic)
            else:
                known.wanted = wanted

    def forget(self, forgotten: Iterable[_Key]) -> None:
        for key in forgotten:
            if self.followed.pop(key, None) is not None:
                self.size_bytes -= _partition_bytes(key[0])

    def select(self, keys: Sequence[_Key], answers: Sequence[PartitionAnswer]) -> list[PartitionAnswer]:
        """Returns those of the answers to `keys` that have changes."""
        selected = []
        for key, answer in zip(keys, answers, strict=True):
            followed = self.followed.get(key)
            if followed is None or followed.has_news(answer):
                selected.append(answer)
            if followed is not None and answer.records_bytes:
                del self.followed[key]
                self.followed[key] = followed
        return selected


class FetchTurn(NamedTuple):
    """One fetch, with or without a session: the partitions to read, and the selection of answers to send."""

    session: _Session | None
    keys: Sequence[_Key]
    wanted: Sequence[FetchCursor]
    is_first: bool = False
    """True if the session begins with this fetch."""

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id

    def select(self, answers: Sequence[PartitionAnswer]) -> Sequence[PartitionAnswer]:
        """Returns those of the answers to `wanted` that must be sent, in their order."""
        return answers if self.session is None else self.session.select(self.keys, answers)


class FetchSessions:
    """All sessions of a broker."""

    def __init__(self, *, slots: int, eviction_ms: int, rng: random.Random, shares: ByteShares | None = None) -> None:
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

    def begin(self, request: SessionRequest, name_of: Callable[[bytes], str], now_ms: int) -> FetchTurn:
        """Begins, continues or ends a session. Returns the partitions to read.

        Raises FetchSessionIdNotFoundError, InvalidFetchSessionEpochError or FetchSessionTopicIdError. Then the request
        has no effect, and the client begins a new session."""
        if request.epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if (ended := self._own(request)) is not None:
                self._drop(ended)
            session = self._create(request, now_ms) if request.epoch == INITIAL_EPOCH else None
            keys = [(topic, wanted.topic_partition.partition) for topic, wanted in request.changed]
            return FetchTurn(session, keys, [wanted for _, wanted in request.changed], is_first=True)
        session = self._continued(request)
        session.next_epoch = 1 if request.epoch == _INT32_MAX else request.epoch + 1
        session.used_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        if problem := self._change(session, request):
            self._drop(session)
            raise _SessionNotFoundError(f"fetch session {session.id} was closed, because {problem}")
        if not session.followed:
            self._drop(session)
            return FetchTurn(None, (), ())
        if session.by_topic_id:
            for (topic, partition), followed in session.followed.items():
                # Since the client sent the topic's id, the topic may have been deleted, or appeared in the metadata.
                assert isinstance(topic, bytes), topic
                if (name := name_of(topic)) != followed.wanted.topic_partition.topic:
                    followed.wanted.topic_partition = TopicPartition(name, partition)
        return FetchTurn(session, list(session.followed), [each.wanted for each in session.followed.values()])

    def _change(self, session: _Session, request: SessionRequest) -> str:
        """Adds and removes partitions. Returns the reason if there is no room for them and the session must end,
        otherwise ""."""
        former_count, former_bytes = len(session.followed), session.size_bytes
        session.take(request.changed)
        session.forget(request.forgotten)
        self._partition_count += len(session.followed) - former_count
        added_bytes = session.size_bytes - former_bytes
        assert session.share is not None, session.id
        is_admitted = self.shares.admits(session.share.user, added_bytes, CONTINUE)
        self.shares.add(session.share, added_bytes)
        if not is_admitted:
            self.shares.refused_count += 1
            return f"its user holds too much of the memory in {self.shares.setting}"
        if len(session.followed) > WHOLE_ITEMS_MAX:
            return f"it has more than {WHOLE_ITEMS_MAX} partitions"
        is_full = self._partition_count > self._slots * PARTITIONS_PER_SLOT
        return "all sessions together have too many partitions" if is_full else ""

    def withdraw(self, turn: FetchTurn) -> int:
        """Withdraws a fetch that gets an empty answer. If the session began with it, the session ends, and the client
        begins another one (KIP-219). Returns the client's session id."""
        session = turn.session
        if session is None:
            return NO_SESSION
        if turn.is_first:
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
        if not size or not self._make_memory(request, now_ms) or not self._make_room(size, now_ms):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._rng.randrange(1, _INT32_MAX)
        session = self._sessions[session_id] = _Session(
            session_id, request.owner, by_topic_id=request.by_topic_id, now_ms=now_ms
        )
        session.take(request.changed)
        self._partition_count += len(session.followed)
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

    def _make_room(self, size: int, now_ms: int) -> bool:
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
            if len(session.followed) >= freed_min:
                return session
        if now_ms < self._look_again_ms and size <= self._looked_size:
            return None
        for session in self._sessions.values():
            if freed_min <= len(session.followed) < size and now_ms - session.created_ms > self._eviction_ms:
                return session
        self._look_again_ms, self._looked_size = now_ms + LOOK_AGAIN_MS, size
        return None

    def _drop(self, session: _Session) -> None:
        del self._sessions[session.id]
        self._partition_count -= len(session.followed)
        assert session.share is not None, session.id
        self.shares.add(session.share, -session.size_bytes)

    def check_invariants(self) -> None:
        """Asserts the sizes and bounds of the sessions, for tests."""
        sizes = [len(session.followed) for session in self._sessions.values()]
        assert all(sizes), "a session follows nothing"
        assert sum(sizes) == self._partition_count, (sizes, self._partition_count)
        assert len(sizes) <= self._slots, (len(sizes), self._slots)
        assert self._partition_count <= self._slots * PARTITIONS_PER_SLOT, self._partition_count
        for session in self._sessions.values():
            size_bytes = SESSION_BYTES + sum(_partition_bytes(topic) for topic, _ in session.followed)
            assert session.size_bytes == size_bytes, (session.size_bytes, size_bytes)
        self.shares.check_invariants()
        held_bytes = sum(session.size_bytes for session in self._sessions.values())
        assert self.shares.held_bytes == held_bytes, (self.shares.held_bytes, held_bytes)


def _partition_bytes(topic: Topic) -> int:
    """Returns the memory of a partition of this topic in a session."""
    if isinstance(topic, bytes):
        return PARTITION_BYTES
    return PARTITION_BYTES + (len(topic) if topic.isascii() else 4 * len(topic))
