"""Handles the gRPC calls of producers and coordinators other than Produce: InitProducerId, WriteTxnMarkers."""

from __future__ import annotations

from klamm.model import TopicPartition
from klamm.wire.calls import CallContext
from klamm.wire.v1 import common_pb2 as pb
from klamm.wire.v1.broker_pb2 import InitProducerIdRequest, InitProducerIdResponse
from klamm_broker.grpc.client_hosts import client_host
from klamm_broker.handlers.init_producer_id import InitProducerIdHandler
from klamm_broker.handlers.write_txn_markers import MarkerToWrite, WriteTxnMarkersHandler
from klamm_broker.log.partition.partition_log import TransactionEnd


class ProducersRpc:
    """Handles InitProducerId and WriteTxnMarkers."""

    def __init__(self, producer_ids: InitProducerIdHandler, markers: WriteTxnMarkersHandler) -> None:
        self._producer_ids = producer_ids
        self._markers = markers

    async def init_producer_id(self, request: InitProducerIdRequest, context: object) -> InitProducerIdResponse:
        initialized = await self._producer_ids.init_producer_id(request.client_id)
        return InitProducerIdResponse(**initialized._asdict())

    async def write_txn_markers(
        self, request: pb.WriteTxnMarkersRequest, context: CallContext
    ) -> pb.WriteTxnMarkersResponse:
        written = await self._markers.write_txn_markers(
            [_marker(marker) for marker in request.markers], client_host(context)
        )
        return pb.WriteTxnMarkersResponse(
            markers=[
                pb.WrittenTxnMarker(
                    producer_id=marker.producer_id,
                    partitions=[pb.PartitionResult(**result._asdict()) for result in results],
                )
                for marker, results in zip(request.markers, written, strict=True)
            ]
        )


def _marker(marker: pb.TxnMarker) -> MarkerToWrite:
    end = TransactionEnd(
        marker.producer_id,
        marker.producer_epoch,
        marker.committed,
        marker.coordinator_epoch,
        marker.transaction_version,
    )
    partitions = [TopicPartition(topic.topic, number) for topic in marker.topics for number in topic.partitions]
    return MarkerToWrite(end, partitions)
