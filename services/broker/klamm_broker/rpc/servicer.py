"""The Broker service: every family of calls as one servicer, closed until the broker is ready."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from prometheus_client import Counter

from klamm_broker.metrics import REQUESTS
from klamm_broker.rpc.delete_records import DeleteRecordsRpc
from klamm_broker.rpc.fetch import FetchRpc
from klamm_broker.rpc.find_coordinator import FindCoordinatorRpc
from klamm_broker.rpc.init_producer_id import InitProducerIdRpc
from klamm_broker.rpc.list_offsets import ListOffsetsRpc
from klamm_broker.rpc.log_dirs import LogDirsRpc
from klamm_broker.rpc.metadata import MetadataRpc
from klamm_broker.rpc.offset_for_leader_epoch import OffsetForLeaderEpochRpc
from klamm_broker.rpc.produce import ProduceRpc


class BrokerServicer:
    """What `RpcServer.add_service(BROKER, ...)` takes. While `is_open` is false every call is UNAVAILABLE."""

    def __init__(
        self,
        *,
        produce: ProduceRpc,
        fetch: FetchRpc,
        list_offsets: ListOffsetsRpc,
        delete_records: DeleteRecordsRpc,
        offset_for_leader_epoch: OffsetForLeaderEpochRpc,
        log_dirs: LogDirsRpc,
        metadata: MetadataRpc,
        find_coordinator: FindCoordinatorRpc,
        init_producer_id: InitProducerIdRpc,
    ) -> None:
        self.is_open = False
        self.produce = self._unary("Produce", produce.produce)
        self.produce_stream = self._stream("ProduceStream", produce.produce_stream)
        self.fetch = self._unary("Fetch", fetch.fetch)
        self.fetch_stream = self._stream("FetchStream", fetch.fetch_stream)
        self.list_offsets = self._unary("ListOffsets", list_offsets.list_offsets)
        self.delete_records = self._unary("DeleteRecords", delete_records.delete_records)
        self.offset_for_leader_epoch = self._unary(
            "OffsetForLeaderEpoch", offset_for_leader_epoch.offset_for_leader_epoch
        )
        self.describe_log_dirs = self._unary("DescribeLogDirs", log_dirs.describe_log_dirs)
        self.metadata = self._unary("Metadata", metadata.metadata)
        self.find_coordinator = self._unary("FindCoordinator", find_coordinator.find_coordinator)
        self.init_producer_id = self._unary("InitProducerId", init_producer_id.init_producer_id)

    def _unary(self, name: str, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        requests = REQUESTS.labels(name)

        async def call(request: Any, context: Any) -> Any:
            await self._admit(requests, context)
            return await function(request, context)

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
