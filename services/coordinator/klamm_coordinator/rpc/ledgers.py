"""The calls of batch ledgers: PrepareTxn, RegisterRun, DecideBatch, and for administrators ListLedgers and
DeleteLedger."""

from __future__ import annotations

from collections.abc import Iterator

from klamm.batches import PARTS_MAX
from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode
from klamm.ledger_ids import LedgerId, ledger_of, ledger_problem
from klamm.wire.calls import CallContext
from klamm.wire.v1.coordinator_pb2 import (
    BATCH_VERDICT_ABORTED,
    BATCH_VERDICT_COMMITTED,
    BATCH_VERDICT_FENCED,
    BATCH_VERDICT_REWOUND,
    BATCH_VERDICT_UNDECIDED,
    BatchPart,
    BatchResponse,
    DecideBatchRequest,
    DeleteLedgerRequest,
    LedgerName,
    ListedLedger,
    ListLedgersRequest,
    ListLedgersResponse,
    OpenPart,
    PrepareTxnRequest,
    RegisterRunRequest,
)
from klamm_coordinator.io.shard_host import MakeRequest
from klamm_coordinator.io.shards import Shards
from klamm_coordinator.ledger.ledger import Verdict
from klamm_coordinator.ledger.messages import (
    DecideBatch,
    DeleteLedger,
    LedgerReply,
    Part,
    RegisterRun,
)
from klamm_coordinator.rpc.answering import answering
from klamm_coordinator.rpc.checks import check_producer, check_transactional_id
from klamm_coordinator.rpc.failures import text_of
from klamm_coordinator.rpc.users import user_of
from klamm_coordinator.transaction.messages import PrepareTxn
from klamm_coordinator.transaction_shard.rules import TransactionRules
from klamm_server.security.needs import PREPARE_TRANSACTION, TRANSACTION_SHOWN, WRITE_TRANSACTION

_RUN_ID_LENGTH_MAX = 249
_VERDICTS = {
    Verdict.UNDECIDED: BATCH_VERDICT_UNDECIDED,
    Verdict.COMMITTED: BATCH_VERDICT_COMMITTED,
    Verdict.ABORTED: BATCH_VERDICT_ABORTED,
    Verdict.FENCED: BATCH_VERDICT_FENCED,
    Verdict.REWOUND: BATCH_VERDICT_REWOUND,
}


class LedgersRpc:
    """The calls of batch ledgers. Each goes to the shard that has the ledger and all its transactional ids."""

    def __init__(self, shards: Shards[TransactionRules]) -> None:
        self._shards = shards

    @answering(BatchResponse)
    async def prepare_txn(self, request: PrepareTxnRequest, context: CallContext) -> BatchResponse:
        WRITE_TRANSACTION.require(request.transactional_id)
        PREPARE_TRANSACTION.require(request.transactional_id)
        check_transactional_id(request.transactional_id)
        if ledger_of(request.transactional_id) is None:
            raise _invalid(f"{request.transactional_id!r} is not the transactional id of a part of a batch")
        _check_batch(request.run_id, request.batch_id)
        producer = check_producer(request.producer_id, request.producer_epoch)
        return await self._ask(
            request.transactional_id,
            lambda reply_id: PrepareTxn(
                reply_id=reply_id,
                transactional_id=request.transactional_id,
                producer=producer,
                run_id=request.run_id,
                batch_id=request.batch_id,
            ),
        )

    @answering(BatchResponse)
    async def register_run(self, request: RegisterRunRequest, context: CallContext) -> BatchResponse:
        ledger = _ledger(request.ledger)
        _check_batch(request.run_id, request.batch_id)
        user = user_of(context, "")
        return await self._ask(
            ledger.key,
            lambda reply_id: RegisterRun(
                reply_id=reply_id, ledger=ledger, run_id=request.run_id, batch_id=request.batch_id, user=user
            ),
        )

    @answering(BatchResponse)
    async def decide_batch(self, request: DecideBatchRequest, context: CallContext) -> BatchResponse:
        ledger = _ledger(request.ledger)
        _check_batch(request.run_id, request.batch_id)
        parts = tuple(_part(ledger, part) for part in request.parts)
        _check_parts(parts, committed=request.committed)
        return await self._ask(
            ledger.key,
            lambda reply_id: DecideBatch(
                reply_id=reply_id,
                ledger=ledger,
                run_id=request.run_id,
                batch_id=request.batch_id,
                committed=request.committed,
                parts=parts,
            ),
        )

    @answering(BatchResponse)
    async def delete_ledger(self, request: DeleteLedgerRequest, context: CallContext) -> BatchResponse:
        ledger = _ledger(request.ledger)
        return await self._ask(ledger.key, lambda reply_id: DeleteLedger(reply_id=reply_id, ledger=ledger))

    @answering(ListLedgersResponse)
    async def list_ledgers(self, request: ListLedgersRequest, context: CallContext) -> ListLedgersResponse:
        return ListLedgersResponse(ledgers=[ledger for host in self._shards for ledger in _listed(host.rules)])

    async def _ask(self, key: str, make_request: MakeRequest) -> BatchResponse:
        reply = await self._shards.ask(key, make_request, LedgerReply)
        return BatchResponse(
            error_code=reply.error,
            error_message=reply.problem or text_of(reply.error),
            verdict=_VERDICTS[reply.verdict],
        )


def _listed(shard: TransactionRules) -> Iterator[ListedLedger]:
    for ledger, value in sorted(shard.ledgers.values.items()):
        if not TRANSACTION_SHOWN.shows(ledger.key):
            continue
        yield ListedLedger(
            name=LedgerName(sink=ledger.sink, query_id=ledger.query_id),
            run_id=value.run_id,
            committed_batch_id=value.committed_batch_id,
            last_update_ms=value.last_update_ms,
            open_parts=[
                OpenPart(transactional_id=open_part, prepared_ms=shard.ids.values[open_part].prepared_ms)
                for open_part in sorted(shard.ledgers.open_parts(ledger))
            ],
        )


def _ledger(name: LedgerName) -> LedgerId:
    """Returns the ledger with that name. Raises TransactionalIdAuthorizationFailedError if the caller may not write to
    the ledger, or InvalidRequestError if the name is not valid."""
    ledger = LedgerId(name.sink, name.query_id)
    WRITE_TRANSACTION.require(ledger.key)
    if problem := ledger_problem(ledger):
        raise _invalid(problem)
    return ledger


def _part(ledger: LedgerId, part: BatchPart) -> Part:
    check_transactional_id(part.transactional_id)
    if ledger_of(part.transactional_id) != ledger:
        raise _invalid(f"{part.transactional_id!r} is not the transactional id of a part of {ledger.key}")
    return Part(part.transactional_id, check_producer(part.producer_id, part.producer_epoch))


def _check_parts(parts: tuple[Part, ...], *, committed: bool) -> None:
    if len(parts) > PARTS_MAX:
        raise _invalid(f"the batch has {len(parts)} parts, expected at most {PARTS_MAX}")
    if len({part.transactional_id for part in parts}) < len(parts):
        raise _invalid("a transactional id is named twice")
    if parts and not committed:
        raise _invalid("the request aborts the batch but names parts; expected no parts")


def _check_batch(run_id: str, batch_id: int) -> None:
    if not 0 < len(run_id) <= _RUN_ID_LENGTH_MAX:
        raise _invalid(f"run_id has {len(run_id)} characters, expected 1 to {_RUN_ID_LENGTH_MAX}")
    if batch_id < 0:
        raise _invalid(f"batch_id is {batch_id}, expected 0 or more")


def _invalid(message: str) -> BrokerError:
    return EXCEPTIONS[ErrorCode.INVALID_REQUEST](message)
