"""The Admin's part about transactions (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from klamm.admin import decode, types
from klamm.admin.calls import raise_first_error
from klamm.cluster.leader_calls import ask_leaders
from klamm.consumer.offsets.offset_store import group_by_topic
from klamm.errors import EXCEPTIONS, ErrorCode, raise_for
from klamm.model import TopicPartition
from klamm.process import PROCESS
from klamm.several_calls import until_all_ended, until_first_error
from klamm.wire.v1 import broker_pb2, common_pb2, coordinator_pb2
from klamm.wire.v1.broker_pb2 import COORDINATOR_KEY_TYPE_TRANSACTION as TRANSACTION
from klamm.wire.v1.coordinator_rpc import CoordinatorStub

if TYPE_CHECKING:
    from klamm.admin.calls import AdminCalls
    from klamm.admin.types import HangingTransaction, ProducerState, TransactionDescription, TransactionListing
    from klamm.cluster.client import KlammClient

MAX_TRANSACTION_TIMEOUT_MS = 15 * 60_000
"""The default of transaction.max.timeout.ms. A transaction that is open for longer may be hanging."""
_OPEN = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})


class TransactionOperations:
    """The Admin's calls about transactional ids, about producers in partitions, and about hanging transactions."""

    _calls: AdminCalls
    _client: KlammClient

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = 0,
        timeout_ms: int | None = None,
    ) -> dict[str, TransactionListing]:
        """Returns the transactional ids of all coordinators. `states`, `producer_ids` and `longer_than_ms`, the time
        for which a transaction has been open, restrict the result."""
        request = coordinator_pb2.ListTransactionsRequest(
            states=list(states), producer_ids=list(producer_ids), longer_than_ms=longer_than_ms
        )

        async def attempt() -> list[Any]:
            cluster = await self._client.refresh_metadata([])
            asked = (self._client.coordinator(node_id).list_transactions(request) for node_id in cluster.coordinators)
            responses = await until_first_error(asked)
            for response in responses:
                raise_for(response.error_code, response.error_message)
            return [transaction for response in responses for transaction in response.transactions]

        listed = await self._calls.retrying(attempt, timeout_ms)
        return {
            transaction.transactional_id: decode.transaction_listing(transaction)
            for transaction in sorted(listed, key=lambda transaction: transaction.transactional_id)
        }

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, TransactionDescription]:
        """Returns the transactions by id. Raises TransactionalIdNotFoundError."""

        async def describe(transactional_id: str) -> TransactionDescription:
            request = coordinator_pb2.DescribeTransactionsRequest(transactional_ids=[transactional_id])
            response = await self._calls.coordinator(
                transactional_id, CoordinatorStub.describe_transactions, request, timeout_ms, key_type=TRANSACTION
            )
            return decode.transaction_description(response.transactions[0])

        described = await until_first_error(describe(transactional_id) for transactional_id in transactional_ids)
        return {transaction.transactional_id: transaction for transaction in described}

    async def abort_transaction(self, transactional_id: str, *, timeout_ms: int | None = None) -> None:
        """Aborts the open transaction of this id, like a transaction timeout. Its producer gets an error and may begin
        the next transaction.

        Raises TransactionalIdNotFoundError, and InvalidTxnStateError if no transaction is open."""
        described = (await self.describe_transactions([transactional_id], timeout_ms=timeout_ms))[transactional_id]
        if described.state != "Ongoing":
            raise EXCEPTIONS[ErrorCode.INVALID_TXN_STATE](
                f"{transactional_id!r} has no open transaction: it is {described.state}"
            )
        await self._init(described, described.producer_id, described.producer_epoch, timeout_ms)

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, tuple[int, int]]:
        """Fences all producers with these transactional ids and aborts their open transactions. Returns (producer id,
        epoch) by transactional id.

        Raises TransactionalIdNotFoundError."""

        async def fence(described: TransactionDescription) -> tuple[int, int]:
            response = await self._init(described, -1, -1, timeout_ms)
            return response.producer_id, response.producer_epoch

        known = await self.describe_transactions(transactional_ids, timeout_ms=timeout_ms)
        fenced = await until_all_ended(fence(transaction) for transaction in known.values())
        return dict(zip(known, fenced, strict=True))

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """Returns the producer states that the partitions' leaders keep. Raises UnknownTopicOrPartitionError."""
        wanted = [TopicPartition(*tp) for tp in partitions]
        found: dict[TopicPartition, tuple[ProducerState, ...]] = {}

        async def ask(node_id: int, of_node: dict[TopicPartition, None]) -> None:
            request = broker_pb2.DescribeProducersRequest(topics=group_by_topic(of_node))
            response = await self._client.broker(node_id).describe_producers(request)
            for part in response.partitions:
                if not part.error_code:
                    found[TopicPartition(part.topic, part.partition)] = tuple(map(decode.producer, part.producers))
            raise_first_error((f"{part.topic}-{part.partition}", part) for part in response.partitions)

        async def attempt() -> None:
            await self._client.refresh_metadata({tp.topic for tp in wanted})
            await ask_leaders(self._client, {tp: None for tp in wanted if tp not in found}, ask)

        await self._calls.retrying(attempt, timeout_ms)
        return {tp: found[tp] for tp in wanted}

    async def find_hanging_transactions(
        self,
        partitions: Iterable[TopicPartition],
        *,
        max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
        timeout_ms: int | None = None,
    ) -> list[HangingTransaction]:
        """Finds transactions that are open in these partitions, but unknown to their coordinators.

        Checks only transactions whose last record is older than `max_transaction_timeout_ms`."""
        older_than_ms = PROCESS.get().wall_ms() - max_transaction_timeout_ms
        described = await self.describe_producers(partitions, timeout_ms=timeout_ms)
        suspects = [
            types.HangingTransaction(tp=tp, producer=producer)
            for tp, producers in described.items()
            for producer in producers
            if producer.current_txn_start_offset >= 0 and producer.last_timestamp_ms <= older_than_ms
        ]
        known = await self._open_of({suspect.producer.producer_id for suspect in suspects}, timeout_ms)
        return [suspect for suspect in suspects if suspect.tp not in known.get(suspect.producer.producer_id, ())]

    async def abort_hanging_transaction(self, hanging: HangingTransaction, *, timeout_ms: int | None = None) -> None:
        """Writes an abort marker into the transaction's partition. Pass only results of `find_hanging_transactions`: if
        a coordinator still knows the transaction, its other partitions may get another outcome.

        Raises InvalidRequestError for a partition of an internal topic, InvalidProducerEpochError if the producer has
        begun another transaction since."""
        tp, producer = hanging.tp, hanging.producer
        marker = common_pb2.TxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=False,
            coordinator_epoch=max(0, producer.coordinator_epoch),
            topics=group_by_topic([tp]),
        )
        request = common_pb2.WriteTxnMarkersRequest(markers=[marker])

        async def ask(node_id: int, of_node: dict[TopicPartition, None]) -> None:
            response = await self._client.broker(node_id).write_txn_markers(request)
            raise_first_error((str(tp), part) for result in response.markers for part in result.partitions)

        async def attempt() -> None:
            await self._client.refresh_metadata({tp.topic})
            await ask_leaders(self._client, {tp: None}, ask)

        await self._calls.retrying(attempt, timeout_ms)

    async def _init(
        self, described: TransactionDescription, producer_id: int, producer_epoch: int, timeout_ms: int | None
    ) -> Any:
        request = coordinator_pb2.InitTransactionalIdRequest(
            transactional_id=described.transactional_id,
            transaction_timeout_ms=described.transaction_timeout_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        return await self._calls.coordinator(
            described.transactional_id, CoordinatorStub.init_producer_id, request, timeout_ms, key_type=TRANSACTION
        )

    async def _open_of(self, producer_ids: set[int], timeout_ms: int | None) -> dict[int, frozenset[TopicPartition]]:
        """Returns the partitions of each transaction that is open for its coordinator, by producer id."""
        if not producer_ids:
            return {}
        listed = await self.list_transactions(producer_ids=sorted(producer_ids), timeout_ms=timeout_ms)
        described = await self.describe_transactions(listed, timeout_ms=timeout_ms)
        return {
            transaction.producer_id: frozenset(transaction.partitions)
            for transaction in described.values()
            if transaction.state in _OPEN
        }
