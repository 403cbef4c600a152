"""Forwards requests about transactions to the coordinators: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn,
EndTxn, TxnOffsetCommit, ListTransactions, DescribeTransactions.

The version of a request selects the protocol. In the first protocol, which all clients know, clients add a
transaction's partitions themselves and keep their epoch between transactions. In the protocol of KIP-890's second part
(`transaction.version` 2), a write adds its partition, and each transaction has its own epoch. In both, brokers ask the
coordinator before a transaction's first write.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import groupby
from typing import Any, Final, TypeVar

from klamm.errors import BrokerError, ErrorCode
from klamm.model import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, coordinator_shard
from klamm.wire.calls import Unary
from klamm.wire.v1 import coordinator_pb2 as pb
from klamm.wire.v1.common_pb2 import PartitionResult, TopicPartitions
from klamm.wire.v1.coordinator_rpc import CoordinatorStub
from klamm_broker.handlers.init_producer_id import InitProducerIdHandler
from klamm_broker.kafka.api import ApiKey, Versions, api
from klamm_broker.kafka.codec.fields import Fields
from klamm_broker.kafka.codec.forwarded import answered, forwarded
from klamm_broker.kafka.cold.coordinators import check_is_coordinator
from klamm_broker.kafka.cold.forwarding import TIMEOUT_MS, Coordinators
from klamm_broker.kafka.cold.groups import by_topic
from klamm_broker.kafka.cold.offset_topics import (
    committed_offsets,
    failed_commits,
    offset_topics,
    unknown_commits,
    with_ids,
)
from klamm_broker.kafka.listener_metadata import ListenerMetadata
from klamm_broker.kafka.requests import Request
from klamm_broker.kafka.topic_ids import TopicIds
from klamm_server.runtime.gather_bounded import gather_bounded
from klamm_server.security.needs import (
    ACT_AS_SERVER,
    DESCRIBE_TRANSACTION,
    IDEMPOTENT_WRITE,
    READ_GROUP,
    WRITE_TOPIC,
    WRITE_TRANSACTION,
)
from klamm_server.security.operations import Check
from klamm_server.security.session import for_itself

_FENCED_SINCE: Final = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
"""The first versions whose clients know PRODUCER_FENCED. Older ones get INVALID_PRODUCER_EPOCH (KIP-588)."""
_ABORTABLE_SINCE: Final = {
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.ADD_PARTITIONS_TO_TXN: 4,
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.END_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 4,
}
"""The first versions whose clients know TRANSACTION_ABORTABLE. Older ones get INVALID_TXN_STATE (KIP-890)."""
_GENERATION_GONE: Final = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
_GENERATION_GONE_SINCE: Final = {ApiKey.TXN_OFFSET_COMMIT: 6}
"""The first version whose clients know these codes. Older ones get ILLEGAL_GENERATION for both (KIP-1319)."""
_LOADING_SINCE: Final = {ApiKey.TXN_OFFSET_COMMIT: 2}
"""The first version whose clients retry after COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296). Older ones get
COORDINATOR_NOT_AVAILABLE."""


_STATES: Final = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)
"""Kafka's names of the states of transactions. Some occur only in Kafka."""


_BUMPS_EPOCH: Final = 5
"""The first version of EndTxn in which each transaction has its own epoch, and the answer has the next epoch."""
_ADDS_OFFSETS: Final = 5
"""The first version of TxnOffsetCommit that adds the group to the transaction. In older versions, the client adds
it."""


RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class TransactionApis:
    """Answers requests of transactions. Each method takes a decoded request and returns the answer's fields."""

    def __init__(
        self,
        coordinators: Coordinators,
        cluster: ListenerMetadata,
        topic_ids: TopicIds,
        producer_ids: InitProducerIdHandler,
    ) -> None:
        self._coordinators = coordinators
        self._cluster = cluster
        self._topic_ids = topic_ids
        self._producer_ids = producer_ids

    @api(ApiKey.INIT_PRODUCER_ID, Versions(0, 5, flexible=2), Check(of_resources=(WRITE_TRANSACTION, IDEMPOTENT_WRITE)))
    async def init_producer_id(self, request: Request, body: Any) -> Fields:
        """Gives a producer its id and epoch. The coordinator gives them to a transactional producer. An idempotent
        producer gets a new id at each request (KIP-360)."""
        if (getattr(body, "producer_id", -1) == -1) != (getattr(body, "producer_epoch", -1) == -1):
            return _identity(pb.InitTransactionalIdResponse(error_code=ErrorCode.INVALID_REQUEST))
        if body.transactional_id is None:
            return _identity(await self._producer_ids.init_producer_id(request.client_id))
        ask = forwarded(pb.InitTransactionalIdRequest, body, client_host=f"/{request.client_host}")
        try:
            answer = await self._ask(body.transactional_id, CoordinatorStub.init_producer_id, ask)
        except BrokerError as error:
            answer = pb.InitTransactionalIdResponse(error_code=error.code)
        return {**_identity(answer), "error_code": _known(request, answer.error_code)}

    @api(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        Versions(0, 5, flexible=3),
        Check(of_resources=(WRITE_TRANSACTION, WRITE_TOPIC, ACT_AS_SERVER)),
        is_whole=True,
    )
    async def add_partitions_to_txn(self, request: Request, body: Any) -> Fields:
        """Adds partitions to a transaction. From version 4 on, a request may have several transactions. Only servers
        may send it, and they need no right to the transactions and topics, as in Kafka (KIP-890)."""
        if request.version >= 4:
            if not ACT_AS_SERVER.allows():
                return {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "results_by_transaction": []}
            with for_itself():
                by_transaction = await gather_bounded(partial(self._add_to_one, request), body.transactions)
            return {"error_code": ErrorCode.NONE, "results_by_transaction": by_transaction}
        results = await self._add(
            body.v3_and_below_transactional_id,
            body.v3_and_below_producer_id,
            body.v3_and_below_producer_epoch,
            _topics(body.v3_and_below_topics),
        )
        return {"results_by_topic_v3_and_below": _added(request, results)}

    async def _add_to_one(self, request: Request, body: Any) -> Fields:
        results = await self._add(
            body.transactional_id,
            body.producer_id,
            body.producer_epoch,
            _topics(body.topics),
            verify_only=body.verify_only,
        )
        return {"transactional_id": body.transactional_id, "topic_results": _added(request, results)}

    @api(ApiKey.ADD_OFFSETS_TO_TXN, Versions(0, 4, flexible=3), Check(of_resources=(WRITE_TRANSACTION, READ_GROUP)))
    async def add_offsets_to_txn(self, request: Request, body: Any) -> Fields:
        """Adds the partition of `__consumer_offsets` that has a group's offsets to a transaction.

        The client needs the rights to write in the transaction and to read the group, but none to that topic. After
        these checks, the broker asks in its own name."""
        try:
            WRITE_TRANSACTION.require(body.transactional_id)
            READ_GROUP.require(body.group_id)
        except BrokerError as error:
            return {"error_code": error.code}
        topic = self._cluster.image.topic(GROUP_METADATA_TOPIC)
        if topic is None:
            return {"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE}
        shard = coordinator_shard(body.group_id, len(topic.partitions))
        with for_itself():
            (result,) = await self._add(
                body.transactional_id,
                body.producer_id,
                body.producer_epoch,
                [TopicPartitions(topic=GROUP_METADATA_TOPIC, partitions=[shard])],
            )
        return {"error_code": _known(request, result.error_code)}

    @api(ApiKey.END_TXN, Versions(0, 5, flexible=3), forwarded_to="Coordinator/EndTxn")
    async def end_txn(self, request: Request, body: Any) -> Fields:
        ask = forwarded(pb.EndTxnRequest, body, bump_epoch=request.version >= _BUMPS_EPOCH)
        try:
            answer = await self._ask(body.transactional_id, CoordinatorStub.end_txn, ask)
        except BrokerError as error:
            answer = pb.EndTxnResponse(error_code=error.code)
        return {**_identity(answer), "error_code": _known(request, answer.error_code)}

    @api(ApiKey.TXN_OFFSET_COMMIT, Versions(0, 6, flexible=3), forwarded_to="Coordinator/TxnOffsetCommit")
    async def txn_offset_commit(self, request: Request, body: Any) -> Fields:
        topics = offset_topics(body.topics, self._topic_ids)
        ask = forwarded(
            pb.TxnOffsetCommitRequest,
            body,
            client_host=f"/{request.client_host}",
            offsets=committed_offsets(topics),
            verify_only=request.version < _ADDS_OFFSETS,
        )
        try:
            answer = await self._coordinators.ask(
                GROUP_METADATA_TOPIC, body.group_id, CoordinatorStub.txn_offset_commit, ask, timeout_ms=TIMEOUT_MS
            )
        except BrokerError as error:
            answer = pb.TxnOffsetCommitResponse(partitions=failed_commits(ask.offsets, error.code))

        def fields(result: PartitionResult) -> Fields:
            is_fenced = answer.epoch_ended or result.error_code == ErrorCode.PRODUCER_FENCED
            code = ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else _known(request, result.error_code)
            return {"partition_index": result.partition, "error_code": code}

        return {"topics": with_ids(by_topic([*answer.partitions, *unknown_commits(topics)], fields), topics)}

    # Administration

    @api(
        ApiKey.LIST_TRANSACTIONS, Versions(0, 2, flexible=0), forwarded_to="Coordinator/ListTransactions", is_whole=True
    )
    async def list_transactions(self, request: Request, body: Any) -> Fields:
        ask = pb.ListTransactionsRequest(
            states=body.state_filters,
            producer_ids=body.producer_id_filters,
            longer_than_ms=max(0, getattr(body, "duration_filter", 0)),
            transactional_id_pattern=getattr(body, "transactional_id_pattern", None) or "",
        )
        try:
            answers = await self._coordinators.ask_all(CoordinatorStub.list_transactions, ask, timeout_ms=TIMEOUT_MS)
        except BrokerError as error:
            return {"error_code": error.code, "unknown_state_filters": [], "transaction_states": []}
        found = [transaction for answer in answers for transaction in answer.transactions]
        own = self._cluster.coordinated_here(listed.transactional_id for listed in found)
        return {
            "error_code": next((answer.error_code for answer in answers if answer.error_code), 0),
            "unknown_state_filters": [state for state in body.state_filters if state not in _STATES],
            "transaction_states": [answered(listed) for listed in found if listed.transactional_id in own],
        }

    @api(ApiKey.DESCRIBE_TRANSACTIONS, Versions(0, 0, flexible=0), forwarded_to="Coordinator/DescribeTransactions")
    async def describe_transactions(self, request: Request, body: Any) -> Fields:
        return {"transaction_states": await gather_bounded(self._describe, body.transactional_ids)}

    async def _describe(self, transactional_id: str) -> Fields:
        ask = pb.DescribeTransactionsRequest(transactional_ids=[transactional_id])
        try:
            check_is_coordinator(self._cluster, transactional_id)
            DESCRIBE_TRANSACTION.refuse_early(transactional_id)
            (found,) = (await self._ask(transactional_id, CoordinatorStub.describe_transactions, ask)).transactions
        except BrokerError as error:
            found = pb.DescribedTransaction(error_code=error.code, transactional_id=transactional_id)
        return answered(found)

    async def _add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        topics: list[TopicPartitions],
        *,
        verify_only: bool = False,
    ) -> list[PartitionResult]:
        """Adds partitions to one transaction. Returns the outcome of each partition."""
        ask = pb.AddPartitionsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            topics=topics,
            verify_only=verify_only,
        )
        try:
            answer = await self._ask(transactional_id, CoordinatorStub.add_partitions_to_txn, ask)
            if not answer.error_code:
                return list(answer.partitions)
            # The producer's transaction timed out, so its epoch has ended.
            is_ended = answer.error_code == ErrorCode.TRANSACTION_ABORTABLE
            code = ErrorCode.PRODUCER_FENCED if is_ended else answer.error_code
        except BrokerError as error:
            code = error.code
        return [
            PartitionResult(topic=topic.topic, partition=number, error_code=code)
            for topic in topics
            for number in topic.partitions
        ]

    async def _ask(
        self, transactional_id: str, rpc: Unary[CoordinatorStub, RequestT, ResponseT], request: RequestT
    ) -> ResponseT:
        return await self._coordinators.ask(
            TRANSACTION_STATE_TOPIC, transactional_id, rpc, request, timeout_ms=TIMEOUT_MS
        )


def _topics(topics: Iterable[Any]) -> list[TopicPartitions]:
    return [TopicPartitions(topic=topic.name, partitions=topic.partitions) for topic in topics]


def _added(request: Request, results: Iterable[PartitionResult]) -> list[Fields]:
    return [
        {
            "name": name,
            "results_by_partition": [
                {"partition_index": result.partition, "partition_error_code": _known(request, result.error_code)}
                for result in group
            ],
        }
        for name, group in groupby(results, key=lambda result: result.topic)
    ]


def _identity(answer: Any) -> Fields:
    """Returns the fields of a producer's new id and epoch, from an answer to InitProducerId or EndTxn."""
    if answer.error_code:
        return {"error_code": answer.error_code, "producer_id": -1, "producer_epoch": -1}
    return {"error_code": 0, "producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}


def _known(request: Request, code: int) -> int:
    """Returns the error code that a client of the request's version knows."""
    if code == ErrorCode.PRODUCER_FENCED and request.version < _FENCED_SINCE.get(request.api_key, 0):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and request.version < _ABORTABLE_SINCE.get(request.api_key, 0):
        return ErrorCode.INVALID_TXN_STATE
    if code in _GENERATION_GONE and request.version < _GENERATION_GONE_SINCE.get(request.api_key, 0):
        return ErrorCode.ILLEGAL_GENERATION
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and request.version < _LOADING_SINCE.get(request.api_key, 0):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code
