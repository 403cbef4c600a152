"""Offsets in transactions: TxnOffsetCommit (KIP-447), and the markers that commit or abort these offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode
from klamm.model import GROUP_METADATA_TOPIC, TopicPartition
from klamm.wire.calls import CallContext
from klamm.wire.v1 import common_pb2
from klamm.wire.v1.common_pb2 import (
    PartitionResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
    WrittenTxnMarker,
)
from klamm.wire.v1.coordinator_pb2 import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from klamm_coordinator.group_shard.rules import GroupRules
from klamm_coordinator.io.shard_host import ShardHost
from klamm_coordinator.io.shards import Shards
from klamm_coordinator.io.txn_registry import EpochEndedError, TxnRegistry
from klamm_coordinator.offsets.messages import CommitOffsets, CommitReply, EndTransaction, EndTransactionReply
from klamm_coordinator.rpc.checks import check_group_id, check_producer, check_transactional_id
from klamm_coordinator.rpc.failures import text_of
from klamm_coordinator.rpc.offsets import offsets_to_commit
from klamm_coordinator.rpc.users import user_of
from klamm_coordinator.runtime.log_write import TxnMarker, TxnProducer
from klamm_server.metadata.image import MetadataImage
from klamm_server.rpc.absent_fields import or_unknown
from klamm_server.rpc.txn_markers import check_marker
from klamm_server.runtime.gather_bounded import gather_bounded
from klamm_server.security.needs import READ_GROUP, WRITE_TRANSACTION

MARKERS_AT_ONCE: Final = 1_000
"""The most markers of one request that are written at the same time. Each takes a task, and a request may have very
many."""


class TxnOffsetsRpc:
    """Answers the calls of transactions to shards of groups. It asks a transaction's coordinator once for each
    transaction and shard."""

    def __init__(self, shards: Shards[GroupRules], registry: TxnRegistry, image: Callable[[], MetadataImage]) -> None:
        self._shards = shards
        self._registry = registry
        self._image = image

    async def txn_offset_commit(self, request: TxnOffsetCommitRequest, context: CallContext) -> TxnOffsetCommitResponse:
        try:
            WRITE_TRANSACTION.require(request.transactional_id)
            READ_GROUP.require(request.group_id)
            check_group_id(request.group_id)
            check_transactional_id(request.transactional_id)
            check_producer(request.producer_id, request.producer_epoch)
            errors = await self._commit(self._shards.of_key(request.group_id), request, context)
        except BrokerError as error:
            return TxnOffsetCommitResponse(
                partitions=[
                    _result(offset.topic, offset.partition, error.code, error.message) for offset in request.offsets
                ],
                epoch_ended=isinstance(error, EpochEndedError),
            )
        return TxnOffsetCommitResponse(
            partitions=[
                _result(offset.topic, offset.partition, error, text_of(error))
                for offset, error in zip(request.offsets, errors, strict=True)
            ]
        )

    async def write_txn_markers(self, request: WriteTxnMarkersRequest, context: CallContext) -> WriteTxnMarkersResponse:
        """Writes the markers, many at once, so that one write to a log takes several of them."""
        wanted = [
            (marker, topic.topic, number)
            for marker in request.markers
            for topic in marker.topics
            for number in topic.partitions
        ]
        results = iter(await gather_bounded(self._write_marker, wanted, MARKERS_AT_ONCE))
        return WriteTxnMarkersResponse(
            markers=[
                WrittenTxnMarker(
                    producer_id=marker.producer_id,
                    partitions=[next(results) for topic in marker.topics for _ in topic.partitions],
                )
                for marker in request.markers
            ]
        )

    async def _commit(
        self, host: ShardHost[GroupRules], request: TxnOffsetCommitRequest, context: CallContext
    ) -> tuple[ErrorCode, ...]:
        user = user_of(context, request.client_host)
        producer = TxnProducer(request.producer_id, request.producer_epoch)
        transactions = host.rules.offsets.transactions
        if transactions.is_open(producer):
            return await self._append(host, request, producer, None, user)
        verification = transactions.begin_verification(producer)
        try:
            await self._registry.add(
                request.transactional_id,
                producer,
                TopicPartition(GROUP_METADATA_TOPIC, host.number),
                verify_only=request.verify_only,
            )
            return await self._append(host, request, producer, verification, user)
        finally:
            transactions.end_verification(verification)

    async def _append(
        self,
        host: ShardHost[GroupRules],
        request: TxnOffsetCommitRequest,
        producer: TxnProducer,
        verification: int | None,
        user: str,
    ) -> tuple[ErrorCode, ...]:
        offsets = offsets_to_commit(self._image(), request.offsets)
        reply = await host.ask(
            lambda reply_id: CommitOffsets(
                reply_id=reply_id,
                group_id=request.group_id,
                generation_id=or_unknown(request, "generation_id"),
                member_id=request.member_id,
                instance_id=request.group_instance_id or None,
                offsets=offsets,
                producer=producer,
                verification=verification,
                user=user,
            )
        )
        assert isinstance(reply, CommitReply), reply
        return reply.errors

    async def _write_marker(self, wanted: tuple[common_pb2.TxnMarker, str, int]) -> PartitionResult:
        marker, topic, number = wanted
        try:
            check_marker(marker)
            if topic != GROUP_METADATA_TOPIC:
                raise EXCEPTIONS[ErrorCode.INVALID_REQUEST](
                    f"a coordinator writes markers to {GROUP_METADATA_TOPIC} only, not to {topic!r}"
                )
            reply = await self._shards.of_number(number).ask(
                lambda reply_id: EndTransaction(
                    reply_id=reply_id,
                    producer=TxnProducer(marker.producer_id, marker.producer_epoch),
                    marker=TxnMarker(marker.committed, marker.coordinator_epoch, marker.transaction_version),
                )
            )
        except BrokerError as error:
            return _result(topic, number, error.code, error.message)
        assert isinstance(reply, EndTransactionReply), reply
        return _result(topic, number, reply.error, text_of(reply.error))


def _result(topic: str, partition: int, error: ErrorCode, message: str) -> PartitionResult:
    return PartitionResult(topic=topic, partition=partition, error_code=error, error_message=message)
