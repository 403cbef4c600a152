"""Asks transaction coordinators to add partitions to transactions that are about to write to them (KIP-890).

Kafka's `AddPartitionsToTxnManager`, and `ReplicaManager.maybeSendPartitionsToTransactionCoordinator`. While the
previous transaction is still being ended, the coordinator answers CONCURRENT_TRANSACTIONS. That is short, so the
registry repeats the request for a while. Otherwise the producer would have to send all records again. Only the
coordinator knows which producer has the transaction and whether it is open. If the coordinator cannot answer now, the
producer must retry.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TRANSACTION_STATE_TOPIC, TopicPartition, coordinator_shard
from klamm.rpc.transport import Transport
from klamm.wire.v1.common_pb2 import TopicPartitions
from klamm.wire.v1.coordinator_pb2 import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from klamm_server.metadata.image import MetadataImage
from klamm_server.net.listeners import Listener
from klamm_server.rpc.coordinator_channels import CoordinatorChannels
from klamm_server.runtime.clock import Clock

_UNDECIDED = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class TransactionRegistry:
    """Asks the owners of transactional ids with `add`. `close` ends the connections. Only the event loop may use it."""

    def __init__(
        self,
        transport: Transport,
        image: Callable[[], MetadataImage],
        own: Listener,
        clock: Clock,
        *,
        timeout_ms: int,
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
    ) -> None:
        self._image = image
        self._clock = clock
        self._channels = CoordinatorChannels(transport, image, own)
        self._timeout_ms = timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._retry_backoff_max_ms = retry_backoff_max_ms

    async def close(self) -> None:
        await self._channels.close()

    async def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        verify_only: bool,
    ) -> dict[TopicPartition, BrokerError]:
        """Adds partitions to a transaction, or with `verify_only` checks that they are in it.

        Returns the errors by partition. A partition without an error is in the transaction until the transaction ends.
        """
        by_topic: defaultdict[str, list[int]] = defaultdict(list)
        for partition in partitions:
            by_topic[partition.topic].append(partition.partition)
        request = AddPartitionsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            topics=[TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()],
            verify_only=verify_only,
        )
        response = await self._ask_until_ended(request)
        if response.error_code:
            error = _for_producer(ErrorCode.of(response.error_code), response.error_message)
            return dict.fromkeys(partitions, error)
        return {
            TopicPartition(partition.topic, partition.partition): _for_producer(
                ErrorCode.of(partition.error_code), partition.error_message
            )
            for partition in response.partitions
            if partition.error_code
        }

    async def _ask_until_ended(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        """Sends the request again while the previous transaction is being ended, for at most `retry_backoff_max_ms`."""
        deadline_ms = self._clock.monotonic_ms() + self._retry_backoff_max_ms
        while True:
            response = await self._ask(request)
            codes = {response.error_code, *(partition.error_code for partition in response.partitions)}
            if ErrorCode.CONCURRENT_TRANSACTIONS not in codes or self._clock.monotonic_ms() >= deadline_ms:
                return response
            await asyncio.sleep(self._retry_backoff_ms / 1000)

    async def _ask(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        topic = self._image().topic(TRANSACTION_STATE_TOPIC)
        shard = -1 if topic is None else coordinator_shard(request.transactional_id, len(topic.partitions))
        stub = self._channels.owner_of(TRANSACTION_STATE_TOPIC, shard)
        if stub is None:
            return AddPartitionsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            return await stub.add_partitions_to_txn(request, timeout_ms=self._timeout_ms)
        except BrokerError as error:
            return AddPartitionsToTxnResponse(error_code=ErrorCode.NETWORK_EXCEPTION, error_message=error.message)


def _for_producer(code: ErrorCode, message: str) -> BrokerError:
    """Returns the error for the producer. Codes are replaced by codes that old producers can handle
    (`ReplicaManager`)."""
    if code in _UNDECIDED:
        return ErrorCode.NOT_ENOUGH_REPLICAS.exception(
            f"the partition could not be added to the transaction: {code.name} {message}".rstrip()
        )
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return code.exception(message)
