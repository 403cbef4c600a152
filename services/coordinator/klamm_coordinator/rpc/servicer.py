"""The Coordinator service: each call is counted, then answered by the `Coordinator`, which the first call loads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from klamm.wire.calls import CallContext
from klamm_coordinator.io.metrics import REQUEST_SECONDS, REQUESTS

if TYPE_CHECKING:
    from klamm_coordinator.rpc.calls import Calls
    from klamm_coordinator.rpc.coordinator import Coordinator

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class CoordinatorServicer:
    """The handlers of all calls of the Coordinator service, for `RpcServer.add_service(COORDINATOR, ...)`."""

    def __init__(self, coordinator: Callable[[], Awaitable[Coordinator]]) -> None:
        self._coordinator = coordinator
        self.join_group = self._counted("JoinGroup", lambda calls: calls.groups.join_group)
        self.sync_group = self._counted("SyncGroup", lambda calls: calls.groups.sync_group)
        self.heartbeat = self._counted("Heartbeat", lambda calls: calls.groups.heartbeat)
        self.leave_group = self._counted("LeaveGroup", lambda calls: calls.groups.leave_group)
        self.consumer_group_heartbeat = self._counted(
            "ConsumerGroupHeartbeat", lambda calls: calls.consumer_groups.consumer_group_heartbeat
        )
        self.consumer_group_describe = self._counted(
            "ConsumerGroupDescribe", lambda calls: calls.consumer_groups.consumer_group_describe
        )
        self.offset_commit = self._counted("OffsetCommit", lambda calls: calls.offsets.offset_commit)
        self.offset_fetch = self._counted("OffsetFetch", lambda calls: calls.offsets.offset_fetch)
        self.lowest_offsets = self._counted("LowestOffsets", lambda calls: calls.holds.lowest_offsets)
        self.offset_delete = self._counted("OffsetDelete", lambda calls: calls.offsets.offset_delete)
        self.list_groups = self._counted("ListGroups", lambda calls: calls.admin.list_groups)
        self.describe_groups = self._counted("DescribeGroups", lambda calls: calls.admin.describe_groups)
        self.delete_groups = self._counted("DeleteGroups", lambda calls: calls.admin.delete_groups)
        self.describe_group_lag = self._counted("DescribeGroupLag", lambda calls: calls.lag.describe_group_lag)
        self.forget_lost_records = self._counted("ForgetLostRecords", lambda calls: calls.lag.forget_lost_records)
        self.tell_log_starts = self._counted("TellLogStarts", lambda calls: calls.lag.tell_log_starts)
        self.txn_offset_commit = self._counted("TxnOffsetCommit", lambda calls: calls.txn_offsets.txn_offset_commit)
        self.write_txn_markers = self._counted("WriteTxnMarkers", lambda calls: calls.txn_offsets.write_txn_markers)
        self.init_producer_id = self._counted("InitProducerId", lambda calls: calls.transactions.init_producer_id)
        self.add_partitions_to_txn = self._counted(
            "AddPartitionsToTxn", lambda calls: calls.transactions.add_partitions_to_txn
        )
        self.end_txn = self._counted("EndTxn", lambda calls: calls.transactions.end_txn)
        self.list_transactions = self._counted("ListTransactions", lambda calls: calls.transactions.list_transactions)
        self.describe_transactions = self._counted(
            "DescribeTransactions", lambda calls: calls.transactions.describe_transactions
        )
        self.prepare_txn = self._counted("PrepareTxn", lambda calls: calls.ledgers.prepare_txn)
        self.register_run = self._counted("RegisterRun", lambda calls: calls.ledgers.register_run)
        self.decide_batch = self._counted("DecideBatch", lambda calls: calls.ledgers.decide_batch)
        self.delete_ledger = self._counted("DeleteLedger", lambda calls: calls.ledgers.delete_ledger)
        self.list_ledgers = self._counted("ListLedgers", lambda calls: calls.ledgers.list_ledgers)

    def _counted(
        self, name: str, choose: Callable[[Calls], Callable[[RequestT, CallContext], Awaitable[ResponseT]]]
    ) -> Callable[[RequestT, CallContext], Coroutine[Any, Any, ResponseT]]:
        requests = REQUESTS.labels(name)

        async def call(request: RequestT, context: CallContext) -> ResponseT:
            requests.inc()
            began_s = perf_counter()
            answer = choose((await self._coordinator()).calls)
            try:
                return await answer(request, context)
            finally:
                REQUEST_SECONDS.labels(name).observe(perf_counter() - began_s)

        return call
