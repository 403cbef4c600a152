"""The calls of transactions: InitProducerId, AddPartitionsToTxn, EndTxn, ListTransactions, DescribeTransactions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable

from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode
from klamm.model import NO_PRODUCER_ID, TRANSACTION_STATE_TOPIC, TopicPartition
from klamm.wire.calls import CallContext
from klamm.wire.v1.common_pb2 import PartitionResult, TopicPartitions
from klamm.wire.v1.coordinator_pb2 import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitTransactionalIdRequest,
    InitTransactionalIdResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from klamm_coordinator.io.shards import Shards
from klamm_coordinator.rpc.answering import answering
from klamm_coordinator.rpc.checks import check_producer, check_transactional_id
from klamm_coordinator.rpc.failures import text_of
from klamm_coordinator.rpc.users import user_of
from klamm_coordinator.transaction.messages import (
    AddPartitions,
    AddReply,
    EndReply,
    EndTxn,
    InitProducerId,
    InitReply,
    VerifyPartitions,
    VerifyReply,
)
from klamm_coordinator.transaction.metadata import ProducerIdAndEpoch, TransactionMetadata
from klamm_coordinator.transaction.states import TxnState
from klamm_coordinator.transaction_shard.rules import TransactionRules
from klamm_coordinator.transaction_shard.settings import TransactionSettings
from klamm_server.metadata.image import MetadataImage
from klamm_server.rpc.absent_fields import or_unknown
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.sliced_work import map_in_slices
from klamm_server.security.needs import (
    DESCRIBE_TRANSACTION,
    TOPIC_SHOWN,
    TRANSACTION_SHOWN,
    WRITE_TOPIC,
    WRITE_TRANSACTION,
)


class TransactionsRpc:
    """Answers the calls of transactions. The newest metadata image says which partitions exist."""

    def __init__(
        self,
        shards: Shards[TransactionRules],
        image: Callable[[], MetadataImage],
        wait_for_producer_ids: Callable[[], Awaitable[None]],
        *,
        settings: TransactionSettings,
        clock: Clock,
    ) -> None:
        self._shards = shards
        self._image = image
        self._wait_for_producer_ids = wait_for_producer_ids
        self._settings = settings
        self._clock = clock

    @answering(InitTransactionalIdResponse, producer_id=-1, producer_epoch=-1)
    async def init_producer_id(
        self, request: InitTransactionalIdRequest, context: CallContext
    ) -> InitTransactionalIdResponse:
        WRITE_TRANSACTION.require(request.transactional_id)
        check_transactional_id(request.transactional_id)
        self._check_timeout(request.transaction_timeout_ms)
        expected = None
        producer_id = or_unknown(request, "producer_id")
        if producer_id != NO_PRODUCER_ID:
            expected = check_producer(producer_id, or_unknown(request, "producer_epoch"))
        self._shards.of_key(request.transactional_id)  # refuses before the wait
        user = user_of(context, request.client_host)
        await self._wait_for_producer_ids()
        reply = await self._shards.ask(
            request.transactional_id,
            lambda reply_id: InitProducerId(
                reply_id=reply_id,
                transactional_id=request.transactional_id,
                timeout_ms=request.transaction_timeout_ms,
                expected=expected,
                user=user,
            ),
            InitReply,
        )
        return InitTransactionalIdResponse(
            error_code=reply.error,
            error_message=self._text_of_init(reply.error),
            producer_id=reply.producer.producer_id,
            producer_epoch=reply.producer.producer_epoch,
        )

    @answering(AddPartitionsToTxnResponse)
    async def add_partitions_to_txn(
        self, request: AddPartitionsToTxnRequest, context: CallContext
    ) -> AddPartitionsToTxnResponse:
        partitions = [TopicPartition(topic.topic, number) for topic in request.topics for number in topic.partitions]
        WRITE_TRANSACTION.require(request.transactional_id)
        check_transactional_id(request.transactional_id)
        producer = check_producer(request.producer_id, request.producer_epoch)
        errors = self._unusable(partitions)
        if errors is not None:
            return AddPartitionsToTxnResponse(partitions=_results(partitions, errors))
        make_request = (_verify if request.verify_only else _add)(request, producer, partitions)
        reply = await self._shards.of_key(request.transactional_id).ask(make_request)
        assert isinstance(reply, AddReply | VerifyReply), reply
        if reply.error is not ErrorCode.NONE:
            return AddPartitionsToTxnResponse(error_code=reply.error, error_message=text_of(reply.error))
        verified = reply.partitions if isinstance(reply, VerifyReply) else [ErrorCode.NONE] * len(partitions)
        return AddPartitionsToTxnResponse(partitions=_results(partitions, verified))

    @answering(EndTxnResponse, producer_id=-1, producer_epoch=-1)
    async def end_txn(self, request: EndTxnRequest, context: CallContext) -> EndTxnResponse:
        WRITE_TRANSACTION.require(request.transactional_id)
        check_transactional_id(request.transactional_id)
        producer = check_producer(request.producer_id, request.producer_epoch)
        reply = await self._shards.ask(
            request.transactional_id,
            lambda reply_id: EndTxn(
                reply_id=reply_id,
                transactional_id=request.transactional_id,
                producer=producer,
                committed=request.committed,
                bump_epoch=request.bump_epoch,
            ),
            EndReply,
        )
        return EndTxnResponse(
            error_code=reply.error,
            error_message=text_of(reply.error),
            producer_id=reply.producer.producer_id,
            producer_epoch=reply.producer.producer_epoch,
        )

    @answering(ListTransactionsResponse)
    async def list_transactions(
        self, request: ListTransactionsRequest, context: CallContext
    ) -> ListTransactionsResponse:
        values: dict[str, TransactionMetadata] = {}
        for host in self._shards:
            values.update(host.rules.ids.values)
        if request.transactional_id_pattern:
            # The module is loaded only when a call needs it.
            from klamm_coordinator.kip848.patterns import matching

            values = {name: values[name] for name in matching(request.transactional_id_pattern, values)}
        wanted = _filter(request, self._clock.wall_ms())
        listed = [
            ListedTransaction(transactional_id=name, producer_id=value.producer_id, state=value.state.text)
            for name, value in sorted(values.items())
            if wanted(value) and TRANSACTION_SHOWN.shows(name)
        ]
        return ListTransactionsResponse(transactions=listed)

    async def describe_transactions(
        self, request: DescribeTransactionsRequest, context: CallContext
    ) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(transactions=await map_in_slices(self._describe, request.transactional_ids))

    def _describe(self, transactional_id: str) -> DescribedTransaction:
        try:
            DESCRIBE_TRANSACTION.require(transactional_id)
            check_transactional_id(transactional_id)
            value = self._shards.of_key(transactional_id).rules.ids.values.get(transactional_id)
            if value is None:
                raise EXCEPTIONS[ErrorCode.TRANSACTIONAL_ID_NOT_FOUND]()
        except BrokerError as error:
            return DescribedTransaction(
                transactional_id=transactional_id, error_code=error.code, error_message=error.message
            )
        return DescribedTransaction(
            transactional_id=transactional_id,
            state=value.state.text,
            transaction_timeout_ms=value.timeout_ms,
            start_time_ms=-1 if value.state.is_idle else value.start_ms,
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            topics=_topics(partition for partition in value.partitions if TOPIC_SHOWN.shows(partition.topic)),
            prepared_ms=value.prepared_ms if value.is_prepared else 0,
        )

    def _check_timeout(self, timeout_ms: int) -> None:
        longest_ms = self._settings.timeout_max_ms
        if not 0 < timeout_ms <= longest_ms:
            raise EXCEPTIONS[ErrorCode.INVALID_TRANSACTION_TIMEOUT](
                f"transaction_timeout_ms is {timeout_ms}, expected 1 to {longest_ms} (transaction.max.timeout.ms)"
            )

    def _text_of_init(self, error: ErrorCode) -> str:
        if error is ErrorCode.POLICY_VIOLATION:
            count = self._settings.id_count_max
            return (
                f"there is no room for another transactional id: this shard has {count} already"
                " (transactional.id.count.max), or the user holds its share of transactional.id.metadata.max.bytes"
            )
        return text_of(error)

    def _unusable(self, partitions: Iterable[TopicPartition]) -> list[ErrorCode] | None:
        """Returns the error of each partition if a transaction cannot write to all of them, or None if all can be
        added."""
        image = self._image()
        errors = [_partition_error(image, partition) for partition in partitions]
        if not any(errors):
            return None
        return [error or ErrorCode.OPERATION_NOT_ATTEMPTED for error in errors]


def _partition_error(image: MetadataImage, partition: TopicPartition) -> ErrorCode:
    if not WRITE_TOPIC.allows(partition.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if partition.topic == TRANSACTION_STATE_TOPIC:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if image.partition(*partition) is None else ErrorCode.NONE


def _add(
    request: AddPartitionsToTxnRequest, producer: ProducerIdAndEpoch, partitions: list[TopicPartition]
) -> Callable[[int], AddPartitions]:
    return lambda reply_id: AddPartitions(
        reply_id=reply_id,
        transactional_id=request.transactional_id,
        producer=producer,
        partitions=frozenset(partitions),
    )


def _verify(
    request: AddPartitionsToTxnRequest, producer: ProducerIdAndEpoch, partitions: list[TopicPartition]
) -> Callable[[int], VerifyPartitions]:
    return lambda reply_id: VerifyPartitions(
        reply_id=reply_id,
        transactional_id=request.transactional_id,
        producer=producer,
        partitions=tuple(partitions),
    )


def _filter(request: ListTransactionsRequest, now_ms: int) -> Callable[[TransactionMetadata], bool]:
    states = {state.lower() for state in request.states}
    producer_ids = frozenset(request.producer_ids)

    def is_requested(value: TransactionMetadata) -> bool:
        if states and value.state.text.lower() not in states:
            return False
        if producer_ids and value.producer_id not in producer_ids:
            return False
        if request.longer_than_ms <= 0:
            return True
        return value.state is TxnState.ONGOING and now_ms - value.start_ms > request.longer_than_ms

    return is_requested


def _topics(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        by_topic[topic].append(partition)
    return [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]


def _results(partitions: Iterable[TopicPartition], errors: Iterable[ErrorCode]) -> list[PartitionResult]:
    return [
        PartitionResult(
            topic=partition.topic, partition=partition.partition, error_code=error, error_message=text_of(error)
        )
        for partition, error in zip(partitions, errors, strict=True)
    ]
