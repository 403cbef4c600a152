"""The leader's side of a follower's fetch session (KIP-227): the follower's positions, and the news to send.

A request names the partitions that changed, and an answer those with records or news. Other partitions cost nothing. So
each entry is in at most one of three states: *ready* (records or an error for it), *news* (only the high watermark or
the log start moved), or silent. The leader does not send the same thing again until the follower names the partition
again.

While the leader's replication quota is exceeded (`replication_quota.py`), the leader *holds* records of throttled
partitions for which the follower is not in sync. The entry stays ready, and the follower still gets its other news.

If a position has a leader epoch that this broker does not know yet, it waits for the metadata. It is not refused,
because the follower learned of the election first. Event loop only; code that waits for the session sets `on_ready`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm.wire.v1.broker_pb2 import (
    DivergingEpoch,
    ReplicaFetchRequest,
    ReplicaPosition,
    ReplicatedPartition,
)
from klamm_broker.log.partition.log_segments import LocatedRecords
from klamm_broker.replica.fetch_reader import LocatedSlice
from klamm_broker.replica.follower_partition import LogEpochEnd
from klamm_broker.replica.leadership import FollowerFetch
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.replica_manager import ReplicaManager

_UNTOLD = -1


class SessionEntry:
    """One partition of a session."""

    __slots__ = (
        "diverging",
        "fetch",
        "has_records",
        "max_bytes",
        "partition",
        "session",
        "told_high_watermark",
        "told_log_start",
    )

    def __init__(self, session: ReplicaSession, partition: Partition, fetch: FollowerFetch) -> None:
        self.session = session
        self.partition = partition
        self.fetch = fetch
        self.max_bytes = 0
        self.has_records = False
        """True after the leader sent records from this position. The follower will send its next position."""
        self.diverging: LogEpochEnd | None = None
        self.told_high_watermark = self.told_log_start = _UNTOLD

    @property
    def is_lost(self) -> bool:
        """True if this broker no longer leads the partition under the follower's epoch."""
        partition = self.partition
        return not partition.is_leader or partition.leader_epoch != self.fetch.current_leader_epoch


class SessionAnswer(NamedTuple):
    """The answer that `locate` found. The caller sends it and calls `sent`, or calls `locate` again later."""

    parts: list[tuple[SessionEntry, ReplicatedPartition]]
    slices: list[LocatedSlice]
    size_bytes: int
    is_urgent: bool
    """True if there is an error or a divergence, so that the answer must not wait."""
    held: frozenset[SessionEntry] = frozenset()
    """Entries with records that the quota delays."""


class SessionWatch:
    """Finds the session entries that a change affects."""

    def __init__(self) -> None:
        self._entries: dict[TopicPartition, dict[SessionEntry, None]] = {}
        self._waiting: dict[ReplicaSession, None] = {}
        """Sessions with positions that wait for metadata."""

    def add(self, entry: SessionEntry) -> None:
        self._entries.setdefault(entry.partition.topic_partition, {})[entry] = None

    def remove(self, entry: SessionEntry) -> None:
        name = entry.partition.topic_partition
        entries = self._entries[name]
        del entries[entry]
        if not entries:
            del self._entries[name]

    def await_metadata(self, session: ReplicaSession) -> None:
        self._waiting[session] = None

    def forget(self, session: ReplicaSession) -> None:
        self._waiting.pop(session, None)

    def on_append(self, name: TopicPartition) -> None:
        """Notifies the entries that the leader's log has grown."""
        for entry in self._entries.get(name, ()):
            entry.session.on_append(entry)

    def on_change(self, name: TopicPartition) -> None:
        """Notifies the entries that the high watermark, the log start, the log end or the leadership changed."""
        entries = self._entries.get(name)
        if entries is not None:
            for entry in tuple(entries):
                entry.session.on_change(entry)

    def on_image(self) -> None:
        """Retries the positions that wait for metadata, after newer metadata were applied."""
        waiting, self._waiting = self._waiting, {}
        for session in waiting:
            session.retry_positions()


class ReplicaSession:
    """The follower's positions by (topic id, partition). The owner calls `close` when the stream has ended."""

    def __init__(self, replicas: ReplicaManager, watch: SessionWatch, on_ready: Callable[[], None]) -> None:
        self._replicas = replicas
        self._watch = watch
        self._on_ready = on_ready
        self._entries: dict[tuple[bytes, int], SessionEntry] = {}
        self._early: dict[tuple[bytes, int], ReplicaPosition] = {}
        self._refused: list[ReplicatedPartition] = []
        self._ready: dict[SessionEntry, None] = {}
        self._changes: dict[SessionEntry, None] = {}
        self._fetch_ms = 0
        self._replica_id = self._broker_epoch = self._session_id = -1

    @property
    def has_ready(self) -> bool:
        return bool(self._ready or self._refused)

    @property
    def has_changes(self) -> bool:
        return bool(self._changes)

    def on_request(self, request: ReplicaFetchRequest, *, now_ms: int) -> None:
        """Applies a follower's request. Partitions that it does not name keep their positions."""
        self._replica_id, self._broker_epoch = request.replica_id, request.broker_epoch
        self._session_id = request.session_id
        self._fetch_ms = now_ms
        for forgotten in request.forgotten:
            key = (forgotten.topic_id, forgotten.partition)
            self._early.pop(key, None)
            self._forget(key)
        self._place(request.positions)

    def retry_positions(self) -> None:
        """Retries positions that were ahead of this broker's metadata."""
        early, self._early = self._early, {}
        self._place(early.values())
        if self.has_ready:
            self._on_ready()

    def close(self) -> None:
        self._watch.forget(self)
        for key in tuple(self._entries):
            self._forget(key)

    # Positions

    def _place(self, positions: Iterable[ReplicaPosition]) -> None:
        for position in positions:
            key = (position.topic_id, position.partition)
            self._early.pop(key, None)
            partition = self._replicas.find(*key)
            if partition is None or partition.leader_epoch < position.current_leader_epoch:
                self._forget(key)
                self._early[key] = position
                self._watch.await_metadata(self)
            else:
                self._place_one(key, partition, position)

    def _place_one(self, key: tuple[bytes, int], partition: Partition, position: ReplicaPosition) -> None:
        fetch = FollowerFetch(
            replica_id=self._replica_id,
            broker_epoch=self._broker_epoch,
            session_id=self._session_id,
            current_leader_epoch=position.current_leader_epoch,
            fetch_offset=position.fetch_offset,
            last_fetched_epoch=position.last_fetched_epoch,
            log_start_offset=position.log_start_offset,
        )
        try:
            diverging = self._replicas.on_follower_fetch(partition, fetch).diverging
        except BrokerError as error:
            self._forget(key)
            self._refused.append(_refusal(SessionEntry(self, partition, fetch), error))
            return
        entry = self._entry(key, partition, fetch)
        entry.fetch, entry.max_bytes = fetch, position.max_bytes
        entry.has_records, entry.diverging = False, diverging
        self._ready.pop(entry, None)
        if diverging is not None or fetch.fetch_offset < partition.log.log_end_offset:
            self._make_ready(entry)
        elif self._has_changes(entry):
            self._changes[entry] = None

    def _entry(self, key: tuple[bytes, int], partition: Partition, fetch: FollowerFetch) -> SessionEntry:
        """Returns the existing entry if it has the same leadership, because then the values that it has sent are still
        valid. Otherwise creates an entry."""
        entry = self._entries.get(key)
        if entry is not None:
            if entry.partition is partition and entry.fetch.current_leader_epoch == fetch.current_leader_epoch:
                return entry
            self._forget(key)
        entry = self._entries[key] = SessionEntry(self, partition, fetch)
        self._watch.add(entry)
        return entry

    def _forget(self, key: tuple[bytes, int]) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self._watch.remove(entry)
        self._ready.pop(entry, None)
        self._changes.pop(entry, None)
        self._note_caught_up(entry)

    def _note_caught_up(self, entry: SessionEntry) -> None:
        """Notes that the follower was still at its position at its newest request, because that request did not name
        the partition. If it had all records then, it was caught up."""
        leadership = entry.partition.leadership
        if leadership is None or entry.is_lost:
            return
        state = leadership.followers.get(self._replica_id)
        if state is not None and state.session_id == self._session_id:
            state.note_caught_up(self._fetch_ms)

    # Changes

    def on_append(self, entry: SessionEntry) -> None:
        if entry.has_records:
            return
        if entry not in self._ready:
            self._note_caught_up(entry)
            self._make_ready(entry)
        self._on_ready()  # also if the entry is ready, because there may be enough bytes now

    def on_change(self, entry: SessionEntry) -> None:
        if entry.is_lost:
            self._make_ready(entry)
            self._on_ready()
            return
        partition = entry.partition
        if not entry.has_records and entry.fetch.fetch_offset < partition.log.log_end_offset:
            self.on_append(entry)
        elif entry not in self._ready and entry not in self._changes and self._has_changes(entry):
            self._changes[entry] = None
            self._on_ready()

    def _make_ready(self, entry: SessionEntry) -> None:
        self._changes.pop(entry, None)  # the records' answer includes the news
        self._ready[entry] = None

    def _has_changes(self, entry: SessionEntry) -> bool:
        partition = entry.partition
        return (
            partition.high_watermark > entry.told_high_watermark
            or partition.log.log_start_offset > entry.told_log_start
        )

    # Answers

    def locate(self, max_bytes: int, *, now_ms: int) -> SessionAnswer:
        """Builds the next answer: records of at most `max_bytes`, unless the first batch is larger. Does not change the
        session.

        Entries are served in the order in which they became ready. Entries without room come first next time."""
        parts: list[tuple[SessionEntry, ReplicatedPartition]] = []
        slices: list[LocatedSlice] = []
        size_bytes, is_urgent = 0, bool(self._refused)
        quota = self._replicas.quotas.leader
        throttled_room = 0 if quota.is_exceeded(now_ms) else quota.free_bytes(now_ms)
        held: list[SessionEntry] = []
        for entry in self._ready:
            free_bytes = max_bytes - size_bytes
            is_throttled = self._is_throttled(entry)
            if is_throttled:
                if throttled_room <= 0:
                    held.append(entry)
                    continue
                free_bytes = min(free_bytes, throttled_room)
            answer, located = self._locate_one(entry, free_bytes, min_one=not size_bytes)
            if answer is None:
                if is_throttled:
                    continue  # entries behind this one may fit
                break
            parts.append((entry, answer))
            is_urgent |= bool(answer.error_code) or entry.diverging is not None
            if located is not None:
                slices.append(LocatedSlice(entry.partition.log.log_dir, located))
                size_bytes += answer.records_bytes
                throttled_room -= answer.records_bytes if is_throttled else 0
        parts += [(entry, self._answer(entry)) for entry in self._changes]
        parts += [(entry, self._answer(entry)) for entry in held if self._has_changes(entry)]
        return SessionAnswer(parts, slices, size_bytes, is_urgent, frozenset(held))

    def resume_at_ms(self, now_ms: int) -> int:
        """Returns the time when records that the last answer held back may be sent."""
        return self._replicas.quotas.leader.free_at_ms(now_ms)

    def _is_throttled(self, entry: SessionEntry) -> bool:
        """Returns True if the quota may delay the entry's records. It never delays in-sync replicas, errors or
        divergences."""
        partition = entry.partition
        if not self._replicas.quotas.leader.is_throttled(partition.topic_partition):
            return False
        leadership = partition.leadership
        is_in_sync = leadership is None or self._replica_id in leadership.isr
        return not is_in_sync and not entry.is_lost and entry.diverging is None

    def _locate_one(
        self, entry: SessionEntry, free_bytes: int, *, min_one: bool
    ) -> tuple[ReplicatedPartition | None, LocatedRecords | None]:
        """Returns the entry's answer and the location of its records. The answer is None if there is no room for the
        next batch."""
        partition, fetch = entry.partition, entry.fetch
        try:
            partition.check_leader(fetch.current_leader_epoch)
            if entry.diverging is not None:
                answer = self._answer(entry)
                epoch, end_offset = entry.diverging
                answer.diverging.CopyFrom(DivergingEpoch(epoch=epoch, end_offset=end_offset))
                return answer, None
            max_bytes = max(0, min(entry.max_bytes, free_bytes))
            located = partition.log.reader.locate(fetch.fetch_offset, max_bytes, min_one=min_one)
        except BrokerError as error:
            return _refusal(entry, error), None
        if located is None or not located.part.size_bytes:
            has_no_room = fetch.fetch_offset < partition.log.log_end_offset
            return (None if has_no_room else self._answer(entry)), None
        answer = self._answer(entry)
        answer.records_bytes = located.part.size_bytes
        return answer, located

    def _answer(self, entry: SessionEntry) -> ReplicatedPartition:
        partition = entry.partition
        return ReplicatedPartition(
            topic_id=partition.topic_id.bytes,
            partition=partition.topic_partition.partition,
            fetch_offset=entry.fetch.fetch_offset,
            high_watermark=partition.high_watermark,
            log_start_offset=partition.log.log_start_offset,
            log_end_offset=partition.log.log_end_offset,
        )

    def is_stale(self, answer: SessionAnswer) -> bool:
        """Returns True if a leadership was lost while the records were read, because the records may have changed."""
        return any(part.records_bytes and entry.is_lost for entry, part in answer.parts)

    def sent(self, answer: SessionAnswer, *, now_ms: int) -> list[ReplicatedPartition]:
        """Updates the session for an answer that is being sent. Returns its parts: those with records first, in the
        order of the slices."""
        refused, self._refused = self._refused, []
        for entry, part in answer.parts:
            if entry in answer.held:
                entry.told_high_watermark, entry.told_log_start = part.high_watermark, part.log_start_offset
                continue
            self._replicas.quotas.leader.record(entry.partition.topic_partition, part.records_bytes, now_ms)
            self._ready.pop(entry, None)
            self._changes.pop(entry, None)
            if part.error_code:
                self._forget((part.topic_id, part.partition))
                continue
            entry.told_high_watermark, entry.told_log_start = part.high_watermark, part.log_start_offset
            entry.has_records = entry.has_records or bool(part.records_bytes) or entry.diverging is not None
            entry.diverging = None
        return [*(part for _, part in answer.parts), *refused]


def _refusal(entry: SessionEntry, error: BrokerError) -> ReplicatedPartition:
    log = entry.partition.log
    is_out_of_range = error.code is ErrorCode.OFFSET_OUT_OF_RANGE
    return ReplicatedPartition(
        topic_id=entry.partition.topic_id.bytes,
        partition=entry.partition.topic_partition.partition,
        error_code=error.code,
        error_message=error.message,
        fetch_offset=entry.fetch.fetch_offset,
        high_watermark=entry.partition.high_watermark,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset if is_out_of_range else 0,
    )
