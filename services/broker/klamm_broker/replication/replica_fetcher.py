"""Follows partitions of one leader over one stream: Kafka's `ReplicaFetcherThread`.

The cores (`replica/follower_session.py`, `replica/follower_partition.py`) make requests and interpret answers. The
fetcher connects, sends, appends and waits. If the stream ends, the fetcher opens a new one and requests every partition
again.

A stream begins as a gRPC call. After the first records, the fetcher connects to the leader's Kafka listener in the
background, if servers may use it. The next stream then goes over that connection, where the kernel sends the records.

If a partition's answer was an error, or could not be appended, the fetcher does not fetch the partition for
`replica.fetch.backoff.ms`.

While the follower's replication quota is exceeded (`replica/replication_quota.py`), throttled partitions that lag are
*held*. The follower asks the leader to remove them from the session until the quota allows them again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from klamm.cluster.metadata import server_address
from klamm.errors import BrokerError, ErrorCode, KlammError
from klamm.ordered_set import OrderedSet
from klamm.retry import Backoff
from klamm.rpc.connection import Connection
from klamm.rpc.kafka_listener import KafkaListener
from klamm.rpc.options import SERVERS
from klamm.rpc.record_channel import Dialled, Dialler, RecordChannel
from klamm.rpc.transport import Transport
from klamm.wire.framed import Buffer, decode_framed, split_records
from klamm.wire.v1.broker_pb2 import ReplicaFetchHeader, ReplicaFetchRequest
from klamm.wire.v1.broker_rpc import REPLICATION
from klamm_broker.io import metrics
from klamm_broker.log.files.storage_failure import DiskFull, LogDir
from klamm_broker.replica.follower_partition import FollowerUpdate, LeaderAnswer, NextStep
from klamm_broker.replica.follower_session import FetchBounds, FollowerSession, PartitionKey, key_of
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.replication_quota import ReplicationQuota
from klamm_broker.replication.record_stream import RecordStream
from klamm_server.rpc.retries import ServerRetries
from klamm_server.runtime.clock import Clock

log = logging.getLogger(__name__)

RECONNECT_MS = 50
"""The wait before the first attempt to connect again; later waits grow up to `replica.fetch.backoff.ms`."""


ANSWER_TIMEOUT_MS = SERVERS.keepalive_time_ms + SERVERS.keepalive_timeout_ms
"""How long an answer over a connection to a Kafka listener may take, besides the wait for records. gRPC finds a lost
leader after the same time."""


class ReplicaStream(Protocol):
    """A stream of requests and answers. Both methods raise a BrokerError if it fails."""

    async def write(self, request: ReplicaFetchRequest) -> None:
        """Sends a request, and returns when the next one may be sent."""

    async def read(self) -> Buffer | None:
        """Returns the next answer, or None after the leader has ended the stream without an error."""


class LeaderListener(NamedTuple):
    """A leader's Kafka listener, under one registration of the leader."""

    listener: KafkaListener
    broker_epoch: int


class FetcherPorts(Protocol):
    """The methods of the broker that a fetcher needs."""

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration."""

    def address(self, broker_id: int) -> tuple[str, int] | None:
        """Returns the host and port of a broker, or None if the metadata do not have them."""

    def kafka_listener(self, broker_id: int) -> LeaderListener | None:
        """Returns the listener of a broker at which followers may fetch, or None if there is none."""

    def next_session_id(self) -> int:
        """Returns a number that is greater than all earlier ones."""

    def on_update(self, partition: Partition, update: FollowerUpdate) -> None:
        """Called after a leader's answer was applied. Raises a BrokerError if the change could not be made durable."""

    def on_disk_full(self, log_dir: LogDir) -> None:
        """Called if an answer could not be applied because the disk is full."""


class ReplicaFetcher:
    """Fetches the partitions of one leader. `follow` and `unfollow` may be called at any time. `run` works until it is
    cancelled."""

    def __init__(
        self,
        transport: Transport,
        *,
        broker_id: int,
        leader: int,
        ports: FetcherPorts,
        bounds: FetchBounds,
        quota: ReplicationQuota,
        backoff_ms: int,
        receive_max_bytes: int,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._broker_id = broker_id
        self._leader = leader
        self._ports = ports
        self._bounds = bounds
        self._quota = quota
        self._backoff_ms = backoff_ms
        self._transport = transport
        self._options = replace(SERVERS, receive_max_bytes=receive_max_bytes)
        self._clock = clock
        self._rng = rng
        reconnect = Backoff(initial_ms=min(RECONNECT_MS, backoff_ms), max_ms=backoff_ms)
        self._retries = ServerRetries("replica fetch stream", f"leader {leader}", reconnect, rng)
        self._partitions: dict[PartitionKey, Partition] = {}
        self._held: dict[PartitionKey, Partition] = {}
        """The partitions that the quota holds: they are followed, but not in the session."""
        self._release: asyncio.TimerHandle | None = None
        """The timer that releases held partitions, set while partitions may be held."""
        self._session = self._new_session()
        self._stream: ReplicaStream | None = None
        self._dialler = Dialler(
            f"broker-{broker_id}",
            sasl=None,
            setup_timeout_ms=SERVERS.connection_setup_timeout_ms,
            answer_max_bytes=receive_max_bytes,
        )
        self._channel: RecordChannel | None = None
        """The connection to the leader's Kafka listener, if there is such a listener."""
        self._dialled: LeaderListener | None = None
        """The listener of `_channel`."""
        self._refused: LeaderListener | None = None
        """The listener at which the last stream got no answer."""
        self._writing = asyncio.Lock()
        self._tasks: OrderedSet[asyncio.Task[None]] = OrderedSet()

    def follow(self, partition: Partition) -> None:
        """Follows the partition from its current position, under its current leader epoch.

        Syncs the records first if `flush.messages` requires it, because the first fetch says that this replica has
        them. They may come from its own time as the leader."""
        if not self._is_synced(partition):
            self._follow_later(partition)
            return
        self._partitions[key_of(partition)] = partition
        self._held.pop(key_of(partition), None)
        self._session.add(partition)
        self._maybe_hold(partition)
        self._send_soon()

    def _is_synced(self, partition: Partition) -> bool:
        try:
            partition.log.sync_owed()
        except DiskFull as error:
            self._ports.on_disk_full(error.log_dir)
            return False
        except KlammError as error:
            log.error("could not sync before following, partition=%s: %s", partition.topic_partition, error)
            return False
        return True

    def _follow_later(self, partition: Partition) -> None:
        following = partition.following

        def follow() -> None:
            if partition.following is following:
                self.follow(partition)

        asyncio.get_running_loop().call_later(self._backoff_ms / 1000, follow)

    def unfollow(self, partition: Partition) -> None:
        self._partitions.pop(key_of(partition), None)
        self._held.pop(key_of(partition), None)
        self._session.remove(partition)

    def on_quota_change(self) -> None:
        """Releases held partitions, because the quota or its partitions have changed."""
        if self._release is not None:
            self._release.cancel()
            self._resume_held()

    async def run(self) -> None:
        """Opens one stream after another until it is cancelled. Other exceptions are bugs."""
        try:
            while True:
                await self._update_channel()
                ended = await self._one_stream()
                if ended is not None:
                    await self._retries.pause(ended)
        finally:
            if self._release is not None:
                self._release.cancel()
            for task in self._tasks:
                task.cancel()
            if self._channel is not None:
                await self._channel.close()

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

    async def _update_channel(self) -> None:
        """Replaces the channel if the leader's Kafka listener is another one."""
        listener = self._ports.kafka_listener(self._leader)
        if listener is not None and listener == self._refused:
            listener = None
        if listener == self._dialled:
            return
        if self._channel is not None:
            await self._channel.close()
        self._dialled, self._channel = listener, None
        if listener is not None:
            self._channel = RecordChannel(listener.listener, self._dialler.dial, self._rng, connections_max=1)

    async def _one_stream(self) -> str | None:
        """Opens a stream and exchanges messages until it ends. Returns the reason why it ended, or None if the next one
        goes over a connection that is ready."""
        self._session = self._new_session()
        try:
            if self._channel is not None and (dialled := self._channel.take()) is not None:
                return await self._stream_records(self._channel, dialled)
            address = self._ports.address(self._leader)
            if address is None:
                return f"the metadata do not know broker {self._leader}"
            async with Connection(self._transport, server_address(*address), self._options) as connection:
                return await self._exchange(connection.stub(REPLICATION).replica_fetch(), self._channel)
        except KlammError as error:
            return str(error)
        finally:
            self._stream = None

    async def _stream_records(self, channel: RecordChannel, dialled: Dialled) -> str | None:
        stream = RecordStream(dialled.connection, timeout_ms=self._bounds.max_wait_ms + ANSWER_TIMEOUT_MS)
        try:
            return await self._exchange(stream, None)
        finally:
            dialled.connection.close()
            channel.give_back(dialled)
            if not stream.has_answers:
                self._refused = self._dialled

    async def _exchange(self, stream: ReplicaStream, channel: RecordChannel | None) -> str | None:
        """Exchanges messages until the stream ends, or until a connection of `channel` is ready for the next one."""
        self._stream = stream
        await self._send_request()
        while (message := await stream.read()) is not None:
            self._retries.reset()
            header, records = decode_framed(message, ReplicaFetchHeader)
            if header.error_code:
                return f"{ErrorCode.of(header.error_code).name}: {header.error_message}"
            parts = split_records(records, [part.records_bytes for part in header.partitions])
            metrics.REPLICATION_BYTES_IN.inc(len(records))
            for partition, answer in self._session.on_answer(header, parts):
                self._apply_answer(partition, answer)
            self._apply_quota()
            if channel is not None and _is_ready(channel, len(records)):
                return None
            await self._send_request()
        return "the leader ended the stream"

    async def _send_request(self) -> None:
        async with self._writing:
            if self._session.may_send and self._stream is not None:
                now_ms = self._clock.monotonic_ms()
                request = self._session.next_request(broker_epoch=self._ports.broker_epoch, now_ms=now_ms)
                await self._stream.write(request)

    def _send_soon(self) -> None:
        if self._stream is not None and self._session.may_send:
            self._spawn(self._send_if_connected())

    async def _send_if_connected(self) -> None:
        with contextlib.suppress(BrokerError):  # the reader of the stream raises the same error
            await self._send_request()

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _apply_answer(self, partition: Partition, answer: LeaderAnswer) -> None:
        """Applies one partition's part of an answer."""
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
            log.error("could not replicate partition=%s leader=%d: %s", partition.topic_partition, self._leader, error)
            step = NextStep.BACK_OFF
        if step is NextStep.AWAIT_METADATA:
            self.unfollow(partition)
        elif step is NextStep.BACK_OFF:
            delay_s = self._backoff_ms / 1000
            asyncio.get_running_loop().call_later(delay_s, self._resume, session, partition)
        elif answer.error_code or len(answer.records) or answer.diverging is not None:
            session.request_again(partition)
        else:
            session.request_if_moved(partition)
        self._maybe_hold(partition)

    # Throttling

    def _apply_quota(self) -> None:
        """Holds the throttled partitions once the quota is exceeded."""
        now_ms = self._clock.monotonic_ms()
        if self._release is not None or not self._quota.is_exceeded(now_ms):
            return
        delay_s = (self._quota.free_at_ms(now_ms) - now_ms) / 1000
        self._release = asyncio.get_running_loop().call_later(delay_s, self._resume_held)
        for partition in self._partitions.values():
            self._maybe_hold(partition)

    def _maybe_hold(self, partition: Partition) -> None:
        if self._release is None or not self._quota.is_throttled(partition.topic_partition):
            return
        following = partition.following
        if following is not None and not following.is_caught_up and key_of(partition) in self._partitions:
            self._held[key_of(partition)] = partition
            self._session.remove(partition)

    def _resume_held(self) -> None:
        """Follows the held partitions again. Holds them again if the quota is still exceeded, because other fetchers
        share it."""
        self._release = None
        held, self._held = self._held, {}
        for partition in held.values():
            self._session.add(partition)
        self._apply_quota()
        self._send_soon()

    def _resume(self, session: FollowerSession, partition: Partition) -> None:
        if session is self._session:
            session.request_again(partition)
            self._send_soon()


def _is_ready(channel: RecordChannel, records_bytes: int) -> bool:
    """Counts records that came by gRPC. Returns True if the channel has a connection."""
    channel.count(records_bytes)
    dialled = channel.take()
    if dialled is not None:
        channel.give_back(dialled)
    return dialled is not None


@dataclass(frozen=True, slots=True)
class _Stream:
    fetcher: ReplicaFetcher
    task: asyncio.Task[None]
    placed: set[PartitionKey] = field(default_factory=set)
    """All partitions of this stream, including those that the fetcher does not follow until there are newer
    metadata."""


class ReplicaFetchers:
    """All fetchers of this broker: `num.replica.fetchers` streams to each leader that it follows.

    Kafka's `ReplicaFetcherManager`. The topic id and the partition number choose one of a leader's streams."""

    def __init__(
        self, make_fetcher: Callable[[int], ReplicaFetcher], *, streams_per_leader: int, watch: Callable[[Any], Any]
    ) -> None:
        """Creates no streams yet. `watch` is called with each fetcher's task, and returns the task."""
        self._make_fetcher = make_fetcher
        self._streams_per_leader = streams_per_leader
        self._watch = watch
        self._streams: dict[tuple[int, int], _Stream] = {}
        self._placed: dict[PartitionKey, tuple[tuple[int, int], object]] = {}
        self._closed = False

    def __len__(self) -> int:
        """Returns the number of streams."""
        return len(self._streams)

    def on_role(self, partition: Partition) -> None:
        """Places the partition on a stream to its leader, or removes it, after its role, leader or leader epoch
        changed."""
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

    def resize(self, streams_per_leader: int, partitions: Iterable[Partition]) -> None:
        """Applies a new `num.replica.fetchers`. `partitions` are all replicas.

        All streams start again. A leader refuses fetches from a stream that is older than the one on which it last saw
        the partition, so partitions cannot move to an existing stream."""
        if streams_per_leader == self._streams_per_leader:
            return
        self._streams_per_leader = streams_per_leader
        for stream in self._streams.values():
            stream.task.cancel()
        self._streams.clear()
        self._placed.clear()
        for partition in partitions:
            self.on_role(partition)

    def on_quota_change(self) -> None:
        """Releases held partitions, because the quota or its partitions have changed."""
        for stream in self._streams.values():
            stream.fetcher.on_quota_change()

    async def close(self) -> None:
        """Ends all streams. Later changes of roles have no effect."""
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
