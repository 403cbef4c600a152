"""Known mistakes of exactly-once sinks, planted to prove that the simulation would see them. Only tests ever do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from klamm_coordinator.ledger import decisions as ledger_decisions
from klamm_coordinator.ledger.decisions import AppendRecords
from klamm_coordinator.ledger.ledger import BatchLedger, Verdict
from klamm_coordinator.ledger.messages import (
    DecideBatch,
    LedgerReply,
    LedgerRequest,
    Part,
)
from klamm_coordinator.transaction_shard.rules import TransactionRules
from klamm_coordinator.transaction_shard.transaction_context import TransactionContext
from tests.sim.kit.mutation import Mutation

_verdict = BatchLedger.verdict
_ending = ledger_decisions._ending
_decide_ledger = TransactionRules._decide_ledger


def _verdict_for_anybody(self: BatchLedger, run_id: str, batch_id: int) -> Verdict:
    return _verdict(self, self.run_id, batch_id)


def _verdict_without_memory(self: BatchLedger, run_id: str, batch_id: int) -> Verdict:
    verdict = _verdict(self, run_id, batch_id)
    return Verdict.UNDECIDED if verdict is Verdict.COMMITTED else verdict


def _decided_whatever_was(self: BatchLedger, batch_id: int, now_ms: int, *, committed: bool) -> BatchLedger:
    if committed:
        return replace(self, committed_batch_id=batch_id, last_update_ms=now_ms)
    return replace(self, aborted_batch_id=batch_id, last_update_ms=now_ms)


def _any_part(part: Part, open_transactions: Any) -> bool:
    return True


def _ending_later(record: Any, reply: Any, *rest: Any) -> AppendRecords | LedgerReply:
    decision = _ending(record, reply, *rest)
    return AppendRecords(decision.records[:1], reply) if isinstance(decision, AppendRecords) else decision


def _ending_all(record: Any, reply: Any, committed: Any, open_transactions: Any, *rest: Any) -> Any:
    counting = tuple(Part(one, value.producer) for one, value in open_transactions.items() if value.is_prepared)
    return _ending(record, reply, counting if committed else (), open_transactions, *rest)


def _never_wait(request: LedgerRequest, ledger: BatchLedger | None) -> bool:
    return False


def _decide_and_tell(self: TransactionRules, request: LedgerRequest, context: TransactionContext) -> None:
    before = len(context.effects.writes)
    _decide_ledger(self, request, context)
    for write in context.effects.writes[before:] if isinstance(request, DecideBatch) else ():
        pending = context._writes[write.write_id]
        context.effects.replies += pending.replies
        pending.replies = ()


MUTATIONS: dict[str, Mutation] = {
    "no-run-fence": Mutation(
        what="a run that another has replaced still prepares and decides",
        known_seed=7,
        changes=((BatchLedger, "verdict", _verdict_for_anybody),),
    ),
    "any-part": Mutation(
        what="a decision does not look whether its parts are still prepared",
        known_seed=5,
        changes=((ledger_decisions, "_is_prepared", _any_part),),
    ),
    "decided-and-left": Mutation(
        what="the decision is stored without the ends of its transactions, which nobody carries out",
        known_seed=0,
        changes=((ledger_decisions, "_ending", _ending_later),),
    ),
    "decided-again": Mutation(
        what="a batch that counts is written again by any caller",
        known_seed=0,
        changes=((BatchLedger, "verdict", _verdict_without_memory), (BatchLedger, "decided", _decided_whatever_was)),
    ),
    "losers-count": Mutation(
        what="every prepared transaction counts, not only the parts that are named",
        known_seed=0,
        changes=((ledger_decisions, "_ending", _ending_all),),
    ),
    "decide-at-once": Mutation(
        what="a decision does not wait for transactions that are changing",
        known_seed=3,
        changes=((ledger_decisions, "needs_quiet", _never_wait),),
    ),
    "told-before-durable": Mutation(
        what="the driver is told of a decision that the log does not have yet",
        known_seed=10,
        changes=((TransactionRules, "_decide_ledger", _decide_and_tell),),
    ),
}
