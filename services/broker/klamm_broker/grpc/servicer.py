"""The Broker service: every family of calls as one servicer, closed until the broker is ready."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from klamm.rpc.status import CallFailed, Status
from klamm.wire.calls import CallContext
from klamm_broker.grpc.fetch import FetchRpc
from klamm_broker.grpc.find_coordinator import FindCoordinatorRpc
from klamm_broker.grpc.log_dirs import LogDirsRpc
from klamm_broker.grpc.metadata import MetadataRpc
from klamm_broker.grpc.partitions import PartitionsRpc
from klamm_broker.grpc.produce import ProduceRpc
from klamm_broker.grpc.produce_records import ProduceRecordsRpc
from klamm_broker.grpc.producers import ProducersRpc
from klamm_broker.grpc.scrubs import ScrubsRpc
from klamm_broker.grpc.unread import UnreadRpc
from klamm_broker.handlers.handlers import Handlers
from klamm_broker.io.metrics import REQUESTS
from klamm_broker.io.request_memory import RequestMemory
from klamm_broker.io.request_times import RequestTimes, timed
from klamm_broker.maintenance.log_scrubber import LogScrubber
from klamm_broker.messages.nodes import BrokerNodes
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.metrics.instruments import Counter
from klamm_server.net.listeners import Listener
from klamm_server.rpc.call_throttle import CallThrottle

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class BrokerServicer:
    """The servicer for `RpcServer.add_service(BROKER, ...)`. While `is_open` is False, every call gets UNAVAILABLE.
    `request_timeout_ms` is the time-out of requests that name none. `rng` chooses partitions for records without a
    key."""

    def __init__(
        self,
        handlers: Handlers,
        replicas: ReplicaManager,
        nodes: BrokerNodes,
        memory: RequestMemory,
        throttle: CallThrottle,
        *,
        scrubber: LogScrubber,
        controllers: Callable[[], Sequence[Sequence[Listener]]],
        request_timeout_ms: int,
        rng: random.Random,
    ) -> None:
        self.is_open = False
        self._throttle = throttle
        produce = ProduceRpc(handlers.produce, nodes, memory, throttle, request_timeout_ms=request_timeout_ms)
        produce_records = ProduceRecordsRpc(
            handlers.produce,
            replicas,
            nodes,
            memory,
            throttle,
            request_timeout_ms=request_timeout_ms,
            clock=throttle.clock,
            rng=rng,
        )
        fetch = FetchRpc(handlers.fetch, nodes, memory, throttle)
        partitions = PartitionsRpc(
            handlers.list_offsets,
            handlers.offset_for_leader_epoch,
            handlers.delete_records,
            handlers.describe_producers,
            request_timeout_ms=request_timeout_ms,
        )
        producers = ProducersRpc(handlers.init_producer_id, handlers.write_txn_markers)
        log_dirs = LogDirsRpc(handlers.log_dirs)
        scrubs = ScrubsRpc(scrubber)
        unread = UnreadRpc(handlers.describe_unread)
        metadata = MetadataRpc(handlers.missing_topics, lambda: replicas.image, nodes, controllers)
        find_coordinator = FindCoordinatorRpc(handlers.coordinator_finder)
        self.produce = self._unary("Produce", produce.produce)
        self.produce_stream = self._stream("ProduceStream", produce.produce_stream)
        self.produce_records = self._unary("ProduceRecords", produce_records.produce_records)
        self.fetch = self._unary("Fetch", fetch.fetch)
        self.fetch_stream = self._stream("FetchStream", fetch.fetch_stream)
        self.list_offsets = self._limited("ListOffsets", partitions.list_offsets)
        self.delete_records = self._limited("DeleteRecords", partitions.delete_records)
        self.offset_for_leader_epoch = self._limited("OffsetForLeaderEpoch", partitions.offset_for_leader_epoch)
        self.describe_producers = self._limited("DescribeProducers", partitions.describe_producers)
        self.describe_unread = self._limited("DescribeUnread", unread.describe_unread)
        self.describe_log_dirs = self._limited("DescribeLogDirs", log_dirs.describe_log_dirs)
        self.alter_replica_log_dirs = self._limited("AlterReplicaLogDirs", log_dirs.alter_replica_log_dirs)
        self.scrub_logs = self._limited("ScrubLogs", scrubs.scrub_logs)
        self.describe_scrubs = self._limited("DescribeScrubs", scrubs.describe_scrubs)
        self.metadata = self._limited("Metadata", metadata.metadata)
        self.find_coordinator = self._limited("FindCoordinator", find_coordinator.find_coordinator)
        self.init_producer_id = self._limited("InitProducerId", producers.init_producer_id)
        self.write_txn_markers = self._unary("WriteTxnMarkers", producers.write_txn_markers)

    def _unary(
        self, name: str, function: Callable[[RequestT, CallContext], Coroutine[Any, Any, ResponseT]]
    ) -> Callable[[RequestT, CallContext], Coroutine[Any, Any, ResponseT]]:
        requests = REQUESTS.labels(name)
        times = RequestTimes("GRPC", name)

        async def call(request: RequestT, context: CallContext) -> ResponseT:
            self._admit(requests)
            return await timed(function(request, context), times)

        return call

    def _limited(
        self, name: str, function: Callable[[RequestT, CallContext], Coroutine[Any, Any, ResponseT]]
    ) -> Callable[[RequestT, CallContext], Coroutine[Any, Any, ResponseT]]:
        """Limits the event loop's time of a client's calls. Produce and Fetch do this themselves, and calls of servers
        have no quota."""
        return self._unary(name, self._throttle.limited(function))

    def _stream(
        self, name: str, function: Callable[[RequestT, CallContext], AsyncIterator[ResponseT]]
    ) -> Callable[[RequestT, CallContext], AsyncIterator[ResponseT]]:
        requests = REQUESTS.labels(name)

        async def call(request: RequestT, context: CallContext) -> AsyncIterator[ResponseT]:
            self._admit(requests)
            async for response in function(request, context):
                yield response

        return call

    def _admit(self, requests: Counter) -> None:
        if not self.is_open:
            raise CallFailed(Status.UNAVAILABLE, "the broker is starting or stopping")
        requests.inc()
