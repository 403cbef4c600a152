"""Asks a transaction's coordinator to add a shard to the transaction, before its offsets are written there
(KIP-890)."""

from __future__ import annotations

from collections.abc import Callable

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TRANSACTION_STATE_TOPIC, TopicPartition, coordinator_shard
from klamm.wire.v1.common_pb2 import TopicPartitions
from klamm.wire.v1.coordinator_pb2 import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from klamm_coordinator.runtime.log_write import TxnProducer
from klamm_server.metadata.image import MetadataImage
from klamm_server.rpc.coordinator_channels import CoordinatorChannels

TIMEOUT_MS = 5_000

_NOT_REACHED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class EpochEndedError(BrokerError):
    """The coordinator has aborted the producer's transaction, and the producer's epoch has ended with it."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class TxnRegistry:
    """Sends requests to the coordinators of transactions. Each call tries once, because the client retries."""

    def __init__(self, channels: CoordinatorChannels, image: Callable[[], MetadataImage]) -> None:
        self._channels = channels
        self._image = image

    async def add(
        self, transactional_id: str, producer: TxnProducer, partition: TopicPartition, *, verify_only: bool
    ) -> None:
        """Adds the partition to the transaction durably. With `verify_only`, only checks that it is part of the
        transaction.

        Raises CoordinatorLoadInProgressError if the transaction's coordinator cannot be reached. The client asked
        another coordinator, and must not look for a new one. Raises EpochEndedError, or the exception of the error that
        the transaction's coordinator answers."""
        response = await self._ask(
            transactional_id,
            AddPartitionsToTxnRequest(
                transactional_id=transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                topics=[TopicPartitions(topic=partition.topic, partitions=[partition.partition])],
                verify_only=verify_only,
            ),
        )
        code, message = ErrorCode.of(response.error_code), response.error_message
        if code is ErrorCode.TRANSACTION_ABORTABLE:
            raise EpochEndedError(message)
        if not code and response.partitions:
            code, message = ErrorCode.of(response.partitions[0].error_code), response.partitions[0].error_message
        if code in _NOT_REACHED:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if code:
            raise code.exception(message)

    async def _ask(self, transactional_id: str, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        topic = self._image().topic(TRANSACTION_STATE_TOPIC)
        shard = coordinator_shard(transactional_id, len(topic.partitions)) if topic is not None else -1
        stub = self._channels.owner_of(TRANSACTION_STATE_TOPIC, shard)
        if stub is None:
            return AddPartitionsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            return await stub.add_partitions_to_txn(request, timeout_ms=TIMEOUT_MS)
        except BrokerError as error:
            return AddPartitionsToTxnResponse(error_code=ErrorCode.NETWORK_EXCEPTION, error_message=error.message)
