"""The Admin's part about batch ledgers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from klamm.admin import decode
from klamm.batches import verdict_error
from klamm.errors import EXCEPTIONS, ErrorCode, raise_for
from klamm.ledger_ids import ledger_problem
from klamm.several_calls import until_first_error
from klamm.wire.v1 import coordinator_pb2
from klamm.wire.v1.broker_pb2 import COORDINATOR_KEY_TYPE_TRANSACTION as TRANSACTION
from klamm.wire.v1.coordinator_pb2 import BATCH_VERDICT_COMMITTED
from klamm.wire.v1.coordinator_rpc import CoordinatorStub

if TYPE_CHECKING:
    from klamm.admin.calls import AdminCalls
    from klamm.admin.types import LedgerListing
    from klamm.batches import PreparedPart
    from klamm.cluster.client import KlammClient
    from klamm.ledger_ids import LedgerId
    from klamm.wire.calls import RequestT, Unary


class LedgerOperations:
    """The Admin's calls about runs and batches of ledgers. A caller may repeat every call after its answer was lost."""

    _calls: AdminCalls
    _client: KlammClient

    async def register_run(
        self, ledger: LedgerId, run_id: str, batch_id: int, *, timeout_ms: int | None = None
    ) -> bool:
        """Registers a run that is about to write a batch. This fences earlier runs and aborts their open transactions.
        Returns False if the batch is committed already, so that there is nothing to write.

        run_id: a different one for every run. Raises RunFencedError, BatchRewoundError, BatchAbortedError."""
        request = coordinator_pb2.RegisterRunRequest(ledger=_name(ledger), run_id=run_id, batch_id=batch_id)
        verdict = await self._ask_ledger(ledger, CoordinatorStub.register_run, request, timeout_ms)
        if error := verdict_error(verdict, run_id, batch_id):
            raise error
        return verdict != BATCH_VERDICT_COMMITTED

    async def commit_batch(
        self,
        ledger: LedgerId,
        run_id: str,
        batch_id: int,
        parts: Iterable[PreparedPart],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Commits all parts of the batch, or none. Other open transactions of the ledger are aborted. Returns when the
        decision is durable; the coordinators apply it afterwards.

        Raises InvalidTxnStateError if a part is no longer prepared. The batch may then be aborted and written again.
        Also raises the errors of `register_run`."""
        request = coordinator_pb2.DecideBatchRequest(
            ledger=_name(ledger),
            run_id=run_id,
            batch_id=batch_id,
            committed=True,
            parts=[coordinator_pb2.BatchPart(**part._asdict()) for part in parts],
        )
        verdict = await self._ask_ledger(ledger, CoordinatorStub.decide_batch, request, timeout_ms)
        if error := verdict_error(verdict, run_id, batch_id):
            raise error

    async def abort_batch(self, ledger: LedgerId, run_id: str, batch_id: int, *, timeout_ms: int | None = None) -> bool:
        """Aborts the batch of this run. Returns False if the batch is committed already; it then stays committed."""
        request = coordinator_pb2.DecideBatchRequest(
            ledger=_name(ledger), run_id=run_id, batch_id=batch_id, committed=False
        )
        return (
            await self._ask_ledger(ledger, CoordinatorStub.decide_batch, request, timeout_ms) != BATCH_VERDICT_COMMITTED
        )

    async def list_ledgers(self, *, timeout_ms: int | None = None) -> dict[LedgerId, LedgerListing]:
        """Returns every coordinator's batch ledgers, with their open transactions."""
        request = coordinator_pb2.ListLedgersRequest()

        async def attempt() -> list[Any]:
            cluster = await self._client.refresh_metadata([])
            asked = (self._client.coordinator(node_id).list_ledgers(request) for node_id in cluster.coordinators)
            responses = await until_first_error(asked)
            for response in responses:
                raise_for(response.error_code, response.error_message)
            return [ledger for response in responses for ledger in response.ledgers]

        listed = map(decode.ledger_listing, await self._calls.retrying(attempt, timeout_ms))
        return {listing.ledger: listing for listing in sorted(listed, key=lambda listing: listing.ledger)}

    async def delete_ledger(self, ledger: LedgerId, *, timeout_ms: int | None = None) -> None:
        """Deletes a ledger and aborts its open transactions. If its query continues afterwards, the query's next batch
        counts as the first one.

        Raises TransactionalIdNotFoundError."""
        request = coordinator_pb2.DeleteLedgerRequest(ledger=_name(ledger))
        await self._ask_ledger(ledger, CoordinatorStub.delete_ledger, request, timeout_ms)

    async def _ask_ledger(
        self,
        ledger: LedgerId,
        rpc: Unary[CoordinatorStub, RequestT, coordinator_pb2.BatchResponse],
        request: RequestT,
        timeout_ms: int | None,
    ) -> int:
        response = await self._calls.coordinator(ledger.key, rpc, request, timeout_ms, key_type=TRANSACTION)
        return response.verdict


def _name(ledger: LedgerId) -> coordinator_pb2.LedgerName:
    if problem := ledger_problem(ledger):
        raise EXCEPTIONS[ErrorCode.INVALID_REQUEST](problem)
    return coordinator_pb2.LedgerName(sink=ledger.sink, query_id=ledger.query_id)
