"""Follows partitions of one leader over one stream: Kafka's `ReplicaFetcherThread`.

What is said and what an answer means are the cores' (`replica/follower_session.py`, `replica/follower_partition.py`);
this connects, sends, appends and waits. A stream that ends is begun anew, and names every partition again. A partition
whose answer was an error, or could not be appended, is left alone for `replica.fetch.backoff.ms`.

While the follower's replication quota is exceeded (`replica/replication_quota.py`), throttled partitions that are
behind are *held*: the leader is told to forget them, until the moment when the quota is free again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc
from grpc import aio

from klamm.errors import ErrorCode, KlammError
from klamm.retry import Backoff
from klamm.wire.framed import decode_framed, split_records
from klamm.wire.service import REPLICATION, Stub
from klamm.wire.v1.broker_pb2 import ReplicaFetchHeader
from klamm_broker import metrics
from klamm_broker.log.storage_failure import DiskFull, LogDir
from klamm_broker.replica.follower_partition import FollowerUpdate, LeaderAnswer, NextStep
from klamm_broker.replica.follower_session import FetchBounds, FollowerSession, PartitionKey, key_of
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.replication_quota import ReplicationQuota
from klamm_server.clock import Clock

log = logging.getLogger(__name__)

RECONNECT_MS = 50
"""Before the first attempt to connect again; later ones take up to `replica.fetch.backoff.ms`."""
_OPTIONS = [
    # Channels to one address otherwise share a connection, and its back-off of up to two minutes.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A leader that hangs sends no FIN; servers take a ping every 5 seconds.
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
]


class FetcherPorts(Protocol):
    """What a fetcher needs of the broker around it."""

    @property
    def broker_epoch(self) -> int:
        """Of this broker's registration."""

    def address(self, broker_id: int) -> tuple[str, int] | None:
        """Where a broker listens, if the metadata know."""

    def next_session_id(self) -> int:
        """Greater than any before."""

    def on_update(self, partition: Partition, update: FollowerUpdate) -> None:
        """An answer of the leader was taken over. Raises a BrokerError when that could not be made durable."""

    def on_disk_full(self, log_dir: LogDir) -> None:
        """An answer could not be taken over: there is no space."""


class ReplicaFetcher:
    """`run` until cancelled; `follow` and `unfollow` at any time."""

    def __init__(
        self,
        *,
        broker_id: int,
        leader: int,
        ports: FetcherPorts,
        bounds: FetchBounds,
        quota: ReplicationQuota,
        backoff_ms: int,
        receive_max_bytes: int,
        clock: Clock,
    ) -> None:
        self._broker_id = broker_id
        self._leader = leader
        self._ports = ports
        self._bounds = bounds
        self._quota = quota
        self._backoff_ms = backoff_ms
        self._options = [*_OPTIONS, ("grpc.max_receive_message_length", receive_max_bytes)]
        self._clock = clock
        self._rng = random.Random()
        self._reconnect = Backoff(initial_ms=min(RECONNECT_MS, backoff_ms), max_ms=backoff_ms)
        self._failures = 0
        self._partitions: dict[PartitionKey, Partition] = {}
        self._held: dict[PartitionKey, Partition] = {}
        """Of those; not in the session."""
        self._release: asyncio.TimerHandle | None = None
        """Set while some may be held."""
        self._session = self._new_session()
        self._call: Any = None
        self._writing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(self, partition: Partition) -> None:
        """From where it stands, under its present leader epoch."""
        self._partitions[key_of(partition)] = partition
        self._held.pop(key_of(partition), None)
        self._session.add(partition)
        self._maybe_hold(partition)
        self._say_soon()

    def unfollow(self, partition: Partition) -> None:
        self._partitions.pop(key_of(partition), None)
        self._held.pop(key_of(partition), None)
        self._session.remove(partition)

    def on_quota_change(self) -> None:
        """Another quota is in force, or for other partitions."""
        if self._release is not None:
            self._release.cancel()
            self._take_up()

    async def run(self) -> None:
        """Raises only what is a bug."""
        try:
            while True:
                reason = await self._one_stream()
                # grpc.aio turns a cancellation that meets the end of a call into a status.
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise asyncio.CancelledError
                log.info("replica fetcher leader=%d stream ended: %s", self._leader, reason)
                self._failures += 1
                await asyncio.sleep(self._reconnect.delay_ms(self._failures, self._rng) / 1000)
        finally:
            if self._release is not None:
                self._release.cancel()
            for task in self._tasks:
                task.cancel()

    def _new_session(self) -> FollowerSession:
        session = FollowerSession(
            replica_id=self._broker_id,
            session_id=self._ports.next_session_id(),
            bounds=self._bounds,
            quota=self._quota,
        )
        for key, partition in self._partitions.items():
            if key not in self._held:
                session.add(partition)
        return session

    async def _one_stream(self) -> str:
        """Returns why it ended."""
        address = self._ports.address(self._leader)
        if address is None:
            return f"the metadata do not know broker {self._leader}"
        self._session = self._new_session()
        try:
            async with aio.insecure_channel("{}:{}".format(*address), options=self._options) as channel:
                self._call = Stub(channel, REPLICATION).replica_fetch()
                return await self._exchange()
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
        except asyncio.InvalidStateError as error:
            return f"the call is over: {error}"
        except KlammError as error:
            return f"its answer cannot be read: {error}"
        finally:
            self._call = None

    async def _exchange(self) -> str:
        await self._say()
        while (message := await self._call.read()) is not aio.EOF:
            self._failures = 0
            header, records = decode_framed(message, ReplicaFetchHeader)
            if header.error_code:
                return f"{ErrorCode.of(header.error_code).name}: {header.error_message}"
            parts = split_records(records, [part.records_bytes for part in header.partitions])
            metrics.REPLICATION_BYTES_IN.inc(len(records))
            for partition, answer in self._session.on_answer(header, parts):
                self._take(partition, answer)
            self._heed_quota()
            await self._say()
        return "the leader ended it"

    async def _say(self) -> None:
        async with self._writing:
            if self._session.may_send and self._call is not None:
                now_ms = self._clock.monotonic_ms()
                request = self._session.next_request(broker_epoch=self._ports.broker_epoch, now_ms=now_ms)
                await self._call.write(request)

    def _say_soon(self) -> None:
        if self._call is not None and self._session.may_send:
            self._spawn(self._say_if_connected())

    async def _say_if_connected(self) -> None:
        try:
            await self._say()
        except (grpc.RpcError, asyncio.InvalidStateError):
            return  # the reader hears of it too

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take(self, partition: Partition, answer: LeaderAnswer) -> None:
        """Takes over one partition's part of an answer."""
        session = self._session
        self._quota.record(partition.topic_partition, len(answer.records), self._clock.monotonic_ms())
        try:
            update = partition.on_leader_answer(answer, wall_ms=self._clock.wall_ms())
            self._ports.on_update(partition, update)
            step = update.next_step
        except DiskFull as error:
            self._ports.on_disk_full(error.log_dir)
            step = NextStep.BACK_OFF
        except KlammError as error:
            log.error("partition=%s leader=%d not replicated: %s", partition.topic_partition, self._leader, error)
            step = NextStep.BACK_OFF
        if step is NextStep.AWAIT_METADATA:
            self.unfollow(partition)
        elif step is NextStep.BACK_OFF:
            delay_s = self._backoff_ms / 1000
            asyncio.get_running_loop().call_later(delay_s, self._resume, session, partition)
        elif answer.error_code or len(answer.records) or answer.diverging is not None:
            session.name_again(partition)
        else:
            session.name_if_moved(partition)
        self._maybe_hold(partition)

    # Throttling

    def _heed_quota(self) -> None:
        """Holds throttled partitions from the moment when the quota is exceeded."""
        now_ms = self._clock.monotonic_ms()
        if self._release is not None or not self._quota.is_exceeded(now_ms):
            return
        delay_s = (self._quota.free_at_ms(now_ms) - now_ms) / 1000
        self._release = asyncio.get_running_loop().call_later(delay_s, self._take_up)
        for partition in self._partitions.values():
            self._maybe_hold(partition)

    def _maybe_hold(self, partition: Partition) -> None:
        if self._release is None or not self._quota.is_throttled(partition.topic_partition):
            return
        following = partition.following
        if following is not None and not following.is_caught_up and key_of(partition) in self._partitions:
            self._held[key_of(partition)] = partition
            self._session.remove(partition)

    def _take_up(self) -> None:
        """Follows what was held, unless the quota is still exceeded: others fetch under it too."""
        self._release = None
        held, self._held = self._held, {}
        for partition in held.values():
            self._session.add(partition)
        self._heed_quota()
        self._say_soon()

    def _resume(self, session: FollowerSession, partition: Partition) -> None:
        if session is self._session:
            session.name_again(partition)
            self._say_soon()


@dataclass(frozen=True, slots=True)
class _Stream:
    fetcher: ReplicaFetcher
    task: asyncio.Task[None]
    placed: set[PartitionKey] = field(default_factory=set)
    """Also those that the fetcher left alone by itself until there are newer metadata."""


class ReplicaFetchers:
    """All fetchers of this broker: `num.replica.fetchers` streams to each leader that it follows.

    Kafka's `ReplicaFetcherManager`. A partition stays with one of a leader's streams, by its name."""

    def __init__(
        self, make_fetcher: Callable[[int], ReplicaFetcher], *, streams_per_leader: int, watch: Callable[[Any], Any]
    ) -> None:
        """`watch` is given each fetcher's task."""
        self._make_fetcher = make_fetcher
        self._streams_per_leader = streams_per_leader
        self._watch = watch
        self._streams: dict[tuple[int, int], _Stream] = {}
        self._placed: dict[PartitionKey, tuple[tuple[int, int], object]] = {}
        self._closed = False

    def __len__(self) -> int:
        """Streams."""
        return len(self._streams)

    def on_role(self, partition: Partition) -> None:
        """The partition follows, or does not, or another leader or under another epoch."""
        key = key_of(partition)
        before = self._placed.get(key)
        if partition.following is None or self._closed:
            if before is not None:
                self._leave(before[0], partition)
                del self._placed[key]
            return
        place = (partition.leader, self._stream_of(key))
        if before == (place, partition.following):
            return
        if before is not None and before[0] != place:
            self._leave(before[0], partition)
        self._placed[key] = (place, partition.following)
        stream = self._stream(place)
        stream.placed.add(key)
        stream.fetcher.follow(partition)

    def on_quota_change(self) -> None:
        """Another quota is in force, or for other partitions."""
        for stream in self._streams.values():
            stream.fetcher.on_quota_change()

    async def close(self) -> None:
        """Follows nothing any more."""
        self._closed = True
        tasks = [stream.task for stream in self._streams.values()]
        self._streams.clear()
        self._placed.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _stream_of(self, key: PartitionKey) -> int:
        topic_id, number = key
        return (int.from_bytes(topic_id[-4:], "big") + number) % self._streams_per_leader

    def _stream(self, place: tuple[int, int]) -> _Stream:
        if place not in self._streams:
            fetcher = self._make_fetcher(place[0])
            task = asyncio.create_task(fetcher.run(), name="replica-fetcher-{}-{}".format(*place))
            self._streams[place] = _Stream(fetcher, self._watch(task))
        return self._streams[place]

    def _leave(self, place: tuple[int, int], partition: Partition) -> None:
        stream = self._streams[place]
        stream.fetcher.unfollow(partition)
        stream.placed.discard(key_of(partition))
        if not stream.placed:
            del self._streams[place]
            stream.task.cancel()
