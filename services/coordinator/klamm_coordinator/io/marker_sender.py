"""Sends the outcomes of transactions to their partitions with WriteTxnMarkers, until each partition has its marker.

One request at a time is under way to a server, with all markers that were waiting for that server. If the request is
slow, the next one is sent without waiting for its answer. So a partition whose replicas lag does not delay transactions
that have no records there. Markers that could not be written are sent again after a pause, to the server that then
holds the partition. A marker for `__consumer_offsets` goes to the coordinator that owns the partition as a shard. All
other markers go to the partition's leader.

A partition whose topic is gone needs no marker. Its topic cannot merely be unknown yet, because a coordinator adds only
partitions that it knows to a transaction, and learns of its shards in the order of the metadata.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm.ordered_set import OrderedSet
from klamm.retry import Backoff
from klamm.wire.v1.broker_rpc import BrokerStub
from klamm.wire.v1.common_pb2 import TopicPartitions, TxnMarker, WriteTxnMarkersRequest
from klamm.wire.v1.coordinator_rpc import CoordinatorStub
from klamm_coordinator.io.marker_destinations import MarkerDestinations
from klamm_coordinator.transaction.messages import SendMarkers
from klamm_server.rpc.retries import ServerRetries
from klamm_server.runtime.faults import watch

log = logging.getLogger(__name__)

Holder = BrokerStub | CoordinatorStub
"""A server that accepts WriteTxnMarkers: a broker or a coordinator."""

RETRY = Backoff(initial_ms=20, max_ms=500)
REQUEST_TIMEOUT_MS = 10_000
PARTITIONS_PER_REQUEST_MAX = 1_000
SLOW_MS = 200
"""The time in ms after which a request counts as slow. A slow request does not delay the next one."""
REQUESTS_MAX = 8
"""The most requests under way to one server. All but one of them are slow."""

_FENCED = frozenset({ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""The error after which this coordinator stops sending, because a later owner of the shard sends the markers."""
_HAS_LATER = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
"""The errors of a partition that has seen a later epoch of the producer. That epoch began after all markers of this one
were written."""


@dataclass(eq=False, slots=True)
class _Sending:
    """The markers of one transaction that are being sent."""

    order: SendMarkers
    coordinator_epoch: int
    owner: object
    on_written: Callable[[], None]
    remaining: set[TopicPartition]
    retries: ServerRetries


@dataclass(frozen=True, slots=True)
class _Part:
    """A marker that waits for one server."""

    sending: _Sending
    partition: TopicPartition


@dataclass(eq=False, slots=True)
class _Server:
    """The markers that wait for one server, and the requests under way to it."""

    waiting: deque[_Part] = field(default_factory=deque)
    requests: OrderedSet[asyncio.Task[None]] = field(default_factory=OrderedSet)
    quick: asyncio.Task[None] | None = None
    """The request that is not slow yet, or None."""


class MarkerSender:
    """Sends the markers of ended transactions. The caller uses `send` for each transaction, `forget` when it releases a
    shard, and `close` at the end. All calls must come from the event loop."""

    def __init__(self, destinations: MarkerDestinations, rng: random.Random) -> None:
        self._destinations = destinations
        self._rng = rng
        self._sendings: OrderedSet[_Sending] = OrderedSet()
        self._servers: defaultdict[Holder, _Server] = defaultdict(_Server)

    @property
    def pending_count(self) -> int:
        """The number of transactions with partitions that lack the marker."""
        return len(self._sendings)

    @property
    def busy_server_count(self) -> int:
        """The number of servers for which markers wait or are under way."""
        return len(self._servers)

    def send(
        self, order: SendMarkers, *, coordinator_epoch: int, owner: object, on_written: Callable[[], None]
    ) -> None:
        """Calls `on_written` when every partition has the marker, unless `owner` is forgotten before."""
        retries = ServerRetries("markers", order.transactional_id, RETRY, self._rng, warn_from=10, warn_every=20)
        sending = _Sending(order, coordinator_epoch, owner, on_written, set(order.partitions), retries)
        self._sendings.add(sending)
        self._route(sending, sorted(order.partitions))

    def forget(self, owner: object) -> None:
        """Drops the markers of `owner`. Its `on_written` callbacks are not called any more."""
        self._sendings = OrderedSet(sending for sending in self._sendings if sending.owner is not owner)

    async def close(self) -> None:
        """Ends the requests under way."""
        self._sendings.clear()
        requests = [request for server in self._servers.values() for request in server.requests]
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)

    def _route(self, sending: _Sending, partitions: Sequence[TopicPartition]) -> None:
        """Sends each partition's marker to the server that holds the partition now."""
        if sending not in self._sendings:
            return
        homeless = []
        addressed: OrderedSet[Holder] = OrderedSet()
        for partition in partitions:
            if not self._destinations.exists(partition):
                self._written(sending, partition)
                continue
            stub = self._destinations.destination_of(partition)
            if stub is None:
                homeless.append(partition)
                continue
            self._servers[stub].waiting.append(_Part(sending, partition))
            addressed.add(stub)
        for stub in addressed:
            self._send_next(stub)
        self._retry(sending, homeless, "the partition has no leader")

    def _retry(self, sending: _Sending, partitions: Sequence[TopicPartition], why: str) -> None:
        if not partitions or sending not in self._sendings:
            return
        delay_s = sending.retries.failed(f"partition={partitions[0]} {why}")
        asyncio.get_running_loop().call_later(delay_s, self._route, sending, partitions)

    def _send_next(self, stub: Holder) -> None:
        """Sends one more request with the waiting markers, if one may be sent now."""
        server = self._servers[stub]
        if not server.waiting and not server.requests:
            del self._servers[stub]
        if not server.waiting or server.quick is not None or len(server.requests) >= REQUESTS_MAX:
            return
        parts = [server.waiting.popleft() for _ in range(min(len(server.waiting), PARTITIONS_PER_REQUEST_MAX))]
        request = watch(asyncio.create_task(self._send(stub, parts), name="markers"))
        server.quick = request
        server.requests.add(request)
        timer = asyncio.get_running_loop().call_later(SLOW_MS / 1000, self._on_slow, stub, request)
        request.add_done_callback(partial(self._on_answered, stub, timer))

    def _on_slow(self, stub: Holder, request: asyncio.Task[None]) -> None:
        server = self._servers[stub]
        if server.quick is request:
            server.quick = None
        self._send_next(stub)

    def _on_answered(self, stub: Holder, timer: asyncio.TimerHandle, request: asyncio.Task[None]) -> None:
        timer.cancel()
        server = self._servers[stub]
        server.requests.discard(request)
        if server.quick is request:
            server.quick = None
        if not request.cancelled():
            self._send_next(stub)

    async def _send(self, stub: Holder, parts: Sequence[_Part]) -> None:
        by_sending: defaultdict[_Sending, list[TopicPartition]] = defaultdict(list)
        for part in parts:
            if part.sending in self._sendings:
                by_sending[part.sending].append(part.partition)
        if not by_sending:
            return
        request = WriteTxnMarkersRequest(markers=[_marker(sending, asked) for sending, asked in by_sending.items()])
        try:
            response = await stub.write_txn_markers(request, timeout_ms=REQUEST_TIMEOUT_MS)
        except BrokerError as error:
            for sending, asked in by_sending.items():
                self._retry(sending, asked, str(error))
            return
        for sending, written in zip(by_sending, response.markers, strict=True):
            failed: dict[TopicPartition, str] = {}
            for result in written.partitions:
                partition = TopicPartition(result.topic, result.partition)
                code = ErrorCode.of(result.error_code)
                if not self._is_done(sending, partition, code, result.error_message):
                    failed[partition] = f"{code.name} {result.error_message}"
            self._retry(sending, list(failed), next(iter(failed.values()), ""))

    def _is_done(self, sending: _Sending, partition: TopicPartition, code: ErrorCode, message: str) -> bool:
        if code in _FENCED:
            log.info(
                "stopped sending markers, because the coordinator is fenced, transactional_id=%s %s",
                sending.order.transactional_id,
                message,
            )
            self._sendings.discard(sending)
            return True
        if code in _HAS_LATER:
            log.error(
                "the partition refused a marker, transactional_id=%s partition=%s error=%s %s",
                sending.order.transactional_id,
                partition,
                code,
                message,
            )
        elif code is not ErrorCode.NONE:
            return False
        self._written(sending, partition)
        return True

    def _written(self, sending: _Sending, partition: TopicPartition) -> None:
        sending.remaining.discard(partition)
        if not sending.remaining and sending in self._sendings:
            self._sendings.discard(sending)
            sending.on_written()


def _marker(sending: _Sending, partitions: Iterable[TopicPartition]) -> TxnMarker:
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        by_topic[topic].append(partition)
    order = sending.order
    return TxnMarker(
        producer_id=order.marker.producer_id,
        producer_epoch=order.marker.producer_epoch,
        committed=order.committed,
        coordinator_epoch=sending.coordinator_epoch,
        transaction_version=order.transaction_version,
        topics=[TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()],
    )
