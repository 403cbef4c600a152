"""A follower's half of its fetch session with one leader (KIP-227): builds the next request, and matches answers to
requests.

A request names only partitions that are new or whose position changed. Requests and answers alternate, with one
exception. If the follower has partitions to add or remove, or new positions to send, it sends another request
immediately. That request makes the leader answer the previous one at once. So two requests may be in flight, but never
two fetches of one partition, because the follower names a partition again only after its answer.

If a partition was removed and added again after its request was sent, the follower drops the answer for it, because the
answer may belong to another leader epoch. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from klamm.wire.v1.broker_pb2 import (
    ReplicaFetchHeader,
    ReplicaFetchRequest,
    ReplicaPartition,
    ReplicaPosition,
    ReplicatedPartition,
)
from klamm_broker.replica.follower_partition import FollowerPosition, LeaderAnswer, LogEpochEnd
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.replication_quota import ReplicationQuota

REQUESTS_UNDER_WAY_MAX = 2

PartitionKey = tuple[bytes, int]
"""The topic id (16 bytes) and the partition number."""


class FetchBounds(NamedTuple):
    """The limits of a fetch, from the settings `replica.fetch.*`."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    """The most bytes of one answer (`replica.fetch.response.max.bytes`)."""
    partition_max_bytes: int
    """The most bytes of one partition in an answer (`replica.fetch.max.bytes`)."""


class _Followed:
    __slots__ = ("partition", "position", "requested_in")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.requested_in = 0
        """The number of the first request that named the partition, or 0 before it."""
        self.position: FollowerPosition | None = None
        """The position that was sent last, or None."""


class FollowerSession:
    """The followed partitions of one fetch session. `add` and `remove` may be called at any time."""

    def __init__(self, *, replica_id: int, session_id: int, bounds: FetchBounds, quota: ReplicationQuota) -> None:
        self._replica_id = replica_id
        self._session_id = session_id
        self._bounds = bounds
        self._quota = quota
        self._followed: dict[PartitionKey, _Followed] = {}
        self._changed: dict[PartitionKey, None] = {}
        self._forgotten: dict[PartitionKey, None] = {}
        self._sent = self._answered = 0

    @property
    def may_send(self) -> bool:
        """True if no request is in flight, or if one is and there are changes to send."""
        under_way = self._sent - self._answered
        return not under_way or (under_way < REQUESTS_UNDER_WAY_MAX and bool(self._changed or self._forgotten))

    def add(self, partition: Partition) -> None:
        """Follows the partition from its current position. This also replaces a partition that is followed under an
        older epoch."""
        key = key_of(partition)
        self._followed[key] = _Followed(partition)
        self._changed[key] = None
        self._forgotten.pop(key, None)

    def remove(self, partition: Partition) -> None:
        key = key_of(partition)
        self._changed.pop(key, None)
        if self._followed.pop(key, None) is not None:
            self._forgotten[key] = None

    def request_again(self, partition: Partition) -> None:
        """Names the partition in the next request, if it is still followed."""
        key = key_of(partition)
        followed = self._followed.get(key)
        if followed is not None and followed.partition is partition:
            self._changed[key] = None

    def request_if_moved(self, partition: Partition) -> None:
        """Names the partition in the next request, unless the leader already knows its position."""
        followed = self._followed.get(key_of(partition))
        following = partition.following
        if followed is not None and following is not None and following.position != followed.position:
            self.request_again(partition)

    def next_request(self, *, broker_epoch: int, now_ms: int) -> ReplicaFetchRequest:
        """Builds the next request. The caller must send it. `now_ms` is monotonic."""
        assert self.may_send, (self._sent, self._answered)
        self._sent += 1
        bounds = self._bounds
        request = ReplicaFetchRequest(
            replica_id=self._replica_id,
            broker_epoch=broker_epoch,
            session_id=self._session_id,
            max_wait_ms=bounds.max_wait_ms,
            min_bytes=bounds.min_bytes,
            max_bytes=bounds.max_bytes,
            positions=[position for key in self._changed if (position := self._position(key, now_ms)) is not None],
            forgotten=[ReplicaPartition(topic_id=topic_id, partition=number) for topic_id, number in self._forgotten],
        )
        self._changed.clear()
        self._forgotten.clear()
        return request

    def _position(self, key: PartitionKey, now_ms: int) -> ReplicaPosition | None:
        followed = self._followed[key]
        partition = followed.partition
        following = partition.following
        if following is None:
            return None
        max_bytes = self._bounds.partition_max_bytes
        if self._quota.is_throttled(partition.topic_partition) and not following.is_caught_up:
            max_bytes = min(max_bytes, self._quota.free_bytes(now_ms))
        followed.position = following.position
        followed.requested_in = followed.requested_in or self._sent
        leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset = following.position
        return ReplicaPosition(
            topic_id=key[0],
            partition=key[1],
            current_leader_epoch=leader_epoch,
            fetch_offset=fetch_offset,
            last_fetched_epoch=last_fetched_epoch,
            log_start_offset=log_start_offset,
            max_bytes=max_bytes,
        )

    def on_answer(
        self, header: ReplicaFetchHeader, records: Sequence[memoryview]
    ) -> Iterator[tuple[Partition, LeaderAnswer]]:
        """Yields the leader's answers to the oldest request in flight, for partitions that are still followed since
        that request. `records` has one part for each partition of the header."""
        self._answered += 1
        assert self._answered <= self._sent, (self._answered, self._sent)
        number = self._answered
        for part, data in zip(header.partitions, records, strict=True):
            followed = self._followed.get((part.topic_id, part.partition))
            if followed is not None and 0 < followed.requested_in <= number:
                yield followed.partition, _answer(part, data)


def key_of(partition: Partition) -> PartitionKey:
    return partition.topic_id.bytes, partition.topic_partition.partition


def _answer(part: ReplicatedPartition, records: memoryview) -> LeaderAnswer:
    diverging = None
    if part.HasField("diverging"):
        diverging = LogEpochEnd(part.diverging.epoch, part.diverging.end_offset)
    return LeaderAnswer(
        error_code=part.error_code,
        fetch_offset=part.fetch_offset,
        high_watermark=part.high_watermark,
        log_start_offset=part.log_start_offset,
        log_end_offset=part.log_end_offset,
        records=records,
        diverging=diverging,
    )
