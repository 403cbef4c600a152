"""The Broker service: every family of calls as one servicer, closed until the broker is ready."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import grpc

from klamm_broker.metrics import REQUESTS
from klamm_broker.request_times import RequestTimes, timed
from klamm_broker.rpc.handlers import Handlers
from klamm_server.instruments import Counter


class BrokerServicer:
    """What `RpcServer.add_service(BROKER, ...)` takes. While `is_open` is false every call is UNAVAILABLE."""

    def __init__(self, handlers: Handlers) -> None:
        self.is_open = False
        self.produce = self._unary("Produce", handlers.produce.produce)
        self.produce_stream = self._stream("ProduceStream", handlers.produce.produce_stream)
        self.fetch = self._unary("Fetch", handlers.fetch.fetch)
        self.fetch_stream = self._stream("FetchStream", handlers.fetch.fetch_stream)
        self.list_offsets = self._unary("ListOffsets", handlers.list_offsets.list_offsets)
        self.delete_records = self._unary("DeleteRecords", handlers.delete_records.delete_records)
        self.offset_for_leader_epoch = self._unary(
            "OffsetForLeaderEpoch", handlers.offset_for_leader_epoch.offset_for_leader_epoch
        )
        self.describe_log_dirs = self._unary("DescribeLogDirs", handlers.log_dirs.describe_log_dirs)
        self.alter_replica_log_dirs = self._unary("AlterReplicaLogDirs", handlers.log_dirs.alter_replica_log_dirs)
        self.scrub_logs = self._unary("ScrubLogs", handlers.scrubs.scrub_logs)
        self.describe_scrubs = self._unary("DescribeScrubs", handlers.scrubs.describe_scrubs)
        self.metadata = self._unary("Metadata", handlers.metadata.metadata)
        self.find_coordinator = self._unary("FindCoordinator", handlers.find_coordinator.find_coordinator)
        self.init_producer_id = self._unary("InitProducerId", handlers.init_producer_id.init_producer_id)
        self.write_txn_markers = self._unary("WriteTxnMarkers", handlers.write_txn_markers.write_txn_markers)
        self.describe_producers = self._unary("DescribeProducers", handlers.describe_producers.describe_producers)

    def _unary(
        self, name: str, function: Callable[..., Coroutine[Any, Any, Any]]
    ) -> Callable[..., Coroutine[Any, Any, Any]]:
        requests = REQUESTS.labels(name)
        times = RequestTimes("GRPC", name)

        async def call(request: Any, context: Any) -> Any:
            await self._admit(requests, context)
            return await timed(function(request, context), times)

        return call

    def _stream(self, name: str, function: Callable[..., AsyncIterator[Any]]) -> Callable[..., AsyncIterator[Any]]:
        requests = REQUESTS.labels(name)

        async def call(request: Any, context: Any) -> AsyncIterator[Any]:
            await self._admit(requests, context)
            async for response in function(request, context):
                yield response

        return call

    async def _admit(self, requests: Counter, context: Any) -> None:
        if not self.is_open:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the broker is starting or stopping")
        requests.inc()
