"""Tests batch ledgers at the shard: one decision for all parts of a batch, made once, by the current run."""

from __future__ import annotations

import pytest

from klamm.errors import ErrorCode
from klamm.ledger_ids import LedgerId
from klamm_coordinator.ledger.ledger import FENCED_RUNS_MAX, Verdict
from klamm_coordinator.ledger.messages import DeleteLedger, Part, RegisterRun
from klamm_coordinator.transaction.metadata import EPOCH_LAST, ProducerIdAndEpoch, TransactionMetadata
from klamm_coordinator.transaction.records import TransactionRecord
from klamm_coordinator.transaction.states import TxnState
from klamm_coordinator.transaction_shard.settings import TransactionSettings
from tests.support.transaction_driver import LEDGER, TransactionDriver

RUN, NEXT_RUN = "run-1", "run-2"
PREPARED_TIMEOUT_MS = TransactionSettings().prepared_timeout_ms


@pytest.fixture
def driver() -> TransactionDriver:
    return TransactionDriver()


def states(driver: TransactionDriver) -> dict[str, TxnState]:
    return {one: value.state for one, value in driver.rules.ids.values.items()}


def test_a_batch_commits_all_its_parts_and_aborts_any_other_part(driver):
    assert driver.register(RUN, 0).verdict is Verdict.UNDECIDED
    parts = tuple(driver.prepared_part(RUN, 0, partition) for partition in (0, 1))
    loser = driver.prepared_part(RUN, 0, 1, attempt=1)
    assert (driver.rules.ids.prepared_count, len(driver.rules.ids.open)) == (3, 3)
    driver.auto_markers = False
    reply = driver.decide(RUN, 0, committed=True, parts=parts)
    assert (driver.rules.ids.prepared_count, len(driver.rules.ids.open)) == (0, 0)
    assert (reply.error, reply.verdict) == (ErrorCode.NONE, Verdict.COMMITTED)
    assert {order.transactional_id: order.committed for order in driver.markers} == {
        parts[0].transactional_id: True,
        parts[1].transactional_id: True,
        loser.transactional_id: False,
    }


def test_a_decision_is_one_append(driver):
    driver.register(RUN, 0)
    parts = tuple(driver.prepared_part(RUN, 0, partition) for partition in range(3))
    driver.auto_ack = False
    driver.ask_decide(RUN, 0, committed=True, parts=parts)
    (write,) = driver.unsent
    assert len(write.records) == 4


def test_a_crash_before_the_write_loses_the_decision_and_after_it_completes_it(driver):
    driver.register(RUN, 0)
    parts = tuple(driver.prepared_part(RUN, 0, partition) for partition in (0, 1))
    driver.auto_ack = False
    driver.ask_decide(RUN, 0, committed=True, parts=parts)
    driver.crash()
    driver.auto_ack = True
    assert set(states(driver).values()) == {TxnState.ONGOING}
    assert all(value.is_prepared for value in driver.rules.ids.values.values())
    driver.auto_markers = False
    assert driver.decide(RUN, 0, committed=True, parts=parts).verdict is Verdict.COMMITTED
    driver.crash()
    assert {order.transactional_id for order in driver.markers} == {part.transactional_id for part in parts}
    driver.auto_markers = True
    driver.settle()
    assert set(states(driver).values()) == {TxnState.COMPLETE_COMMIT}


def test_the_first_decision_of_a_run_is_final(driver):
    driver.register(RUN, 0)
    part = driver.prepared_part(RUN, 0, 0)
    assert driver.decide(RUN, 0, committed=False).verdict is Verdict.ABORTED
    assert driver.decide(RUN, 0, committed=True, parts=(part,)).verdict is Verdict.ABORTED
    assert driver.register(RUN, 0).verdict is Verdict.ABORTED
    assert states(driver) == {part.transactional_id: TxnState.COMPLETE_ABORT}


def test_a_committed_batch_stays_committed_after_later_requests(driver):
    driver.register(RUN, 0)
    part = driver.prepared_part(RUN, 0, 0)
    for committed in (True, True, False):
        parts = (part,) if committed else ()
        assert driver.decide(RUN, 0, committed=committed, parts=parts).verdict is Verdict.COMMITTED
    assert driver.register(NEXT_RUN, 0).verdict is Verdict.COMMITTED
    assert driver.decide(NEXT_RUN, 0, committed=False).verdict is Verdict.COMMITTED


def test_the_next_run_may_write_an_aborted_batch(driver):
    driver.register(RUN, 0)
    driver.decide(RUN, 0, committed=False)
    assert driver.register(NEXT_RUN, 0).verdict is Verdict.UNDECIDED
    part = driver.prepared_part(NEXT_RUN, 0, 0)
    assert driver.decide(NEXT_RUN, 0, committed=True, parts=(part,)).verdict is Verdict.COMMITTED


def test_a_new_run_fences_the_last_run_and_aborts_its_open_parts(driver):
    driver.register(RUN, 3)
    part = driver.prepared_part(RUN, 3, 0)
    assert driver.register(NEXT_RUN, 3).verdict is Verdict.UNDECIDED
    assert states(driver) == {part.transactional_id: TxnState.COMPLETE_ABORT}
    assert driver.register(RUN, 3).verdict is Verdict.FENCED
    assert driver.decide(RUN, 3, committed=True, parts=(part,)).verdict is Verdict.FENCED
    producer = driver.init(transactional_id=part.transactional_id).producer
    driver.add(producer, 0, transactional_id=part.transactional_id)
    reply = driver.prepare(producer, RUN, 3, transactional_id=part.transactional_id)
    assert reply.verdict is Verdict.FENCED
    assert not driver.value(part.transactional_id).is_prepared


def test_a_rewound_query_gets_rewound_and_fences_no_run(driver):
    driver.register(RUN, 7)
    driver.decide(RUN, 7, committed=True)
    assert driver.register("restored", 5).verdict is Verdict.REWOUND
    assert driver.register(RUN, 6).verdict is Verdict.REWOUND
    assert driver.register(RUN, 8).verdict is Verdict.UNDECIDED


def test_a_part_that_is_not_prepared_makes_the_decision_fail(driver):
    driver.register(RUN, 0)
    prepared = driver.prepared_part(RUN, 0, 0)
    transactional_id = LEDGER.part(1, 0)
    producer = driver.init(transactional_id=transactional_id).producer
    driver.add(producer, 1, transactional_id=transactional_id)
    reply = driver.decide(RUN, 0, committed=True, parts=(prepared, Part(transactional_id, producer)))
    assert reply.error is ErrorCode.INVALID_TXN_STATE
    assert transactional_id in reply.problem
    assert set(states(driver).values()) == {TxnState.ONGOING}
    older = prepared._replace(producer=ProducerIdAndEpoch(prepared.producer.producer_id, 30))
    assert driver.decide(RUN, 0, committed=True, parts=(older,)).error is ErrorCode.INVALID_TXN_STATE


def test_only_the_ledger_commits_a_part(driver):
    driver.register(RUN, 0)
    part = driver.prepared_part(RUN, 0, 0)
    ended = driver.end(part.producer, committed=True, transactional_id=part.transactional_id)
    assert ended.error is ErrorCode.INVALID_TXN_STATE
    assert driver.add(part.producer, 5, transactional_id=part.transactional_id) is ErrorCode.INVALID_TXN_STATE
    aborted = driver.end(part.producer, committed=False, transactional_id=part.transactional_id)
    assert aborted.error is ErrorCode.NONE
    assert driver.decide(RUN, 0, committed=True, parts=(part,)).error is ErrorCode.INVALID_TXN_STATE


def test_a_prepared_transaction_is_aborted_after_the_prepared_timeout(driver):
    driver.register(RUN, 0)
    part = driver.prepared_part(RUN, 0, 0)
    driver.advance(PREPARED_TIMEOUT_MS - 1)
    assert driver.value(part.transactional_id).is_prepared
    driver.advance(2 * driver.settings.abort_check_interval_ms)
    assert driver.value(part.transactional_id).state is TxnState.COMPLETE_ABORT
    assert driver.decide(RUN, 0, committed=True, parts=(part,)).error is ErrorCode.INVALID_TXN_STATE


def test_a_decision_waits_for_pending_changes_and_blocks_later_ones(driver):
    driver.register(RUN, 0)
    part = driver.prepared_part(RUN, 0, 0)
    late = LEDGER.part(0, 1)
    producer = driver.init(transactional_id=late).producer
    driver.add(producer, 0, transactional_id=late)
    driver.auto_ack = driver.auto_markers = False
    prepared = driver.ask_prepare(producer, RUN, 0, transactional_id=late)
    decided = driver.ask_decide(RUN, 0, committed=True, parts=(part,))
    added = driver.ask_add(producer, 1, transactional_id=late)
    driver.ack()
    assert driver.replies[prepared].error is ErrorCode.NONE
    assert decided not in driver.replies
    driver.ack()
    assert driver.replies[decided].verdict is Verdict.COMMITTED
    assert driver.value(late).state is TxnState.PREPARE_ABORT
    assert driver.replies[added].error is not ErrorCode.NONE


def test_requests_that_wait_too_long_get_concurrent_transactions(driver):
    driver.register(RUN, 0)
    part = driver.prepared_part(RUN, 0, 0)
    driver.auto_ack = False
    driver.ask_decide(RUN, 0, committed=True, parts=(part,))
    waiting = [driver.ask_register(NEXT_RUN, 0), driver.ask_init(transactional_id=part.transactional_id)]
    driver.advance(driver.settings.wait_max_ms)
    assert {driver.replies[one].error for one in waiting} == {ErrorCode.CONCURRENT_TRANSACTIONS}


def test_a_refused_append_changes_nothing(driver):
    driver.register(RUN, 0)
    part = driver.prepared_part(RUN, 0, 0)
    driver.auto_ack = False
    decided = driver.ask_decide(RUN, 0, committed=True, parts=(part,))
    driver.nack(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert driver.replies[decided].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.auto_ack = True
    assert driver.decide(RUN, 0, committed=True, parts=(part,)).verdict is Verdict.COMMITTED


def test_a_decision_replaces_a_producer_id_at_its_last_epoch(driver):
    transactional_id = LEDGER.part(0, 0)
    value = TransactionMetadata(
        producer_id=7, producer_epoch=EPOCH_LAST - 1, timeout_ms=1_000, state=TxnState.EMPTY, last_update_ms=0
    )
    driver.rules.replay(TransactionRecord(transactional_id, value))
    driver.register(RUN, 0)
    part = driver.prepared_part(RUN, 0, 0)
    assert part.producer == (7, EPOCH_LAST)
    assert driver.decide(RUN, 0, committed=True, parts=(part,)).verdict is Verdict.COMMITTED
    assert driver.value(transactional_id).producer_id != 7


def test_a_run_that_is_not_registered_cannot_decide_or_prepare(driver):
    assert driver.decide(RUN, 0, committed=True).error is ErrorCode.INVALID_TXN_STATE
    producer = driver.init(transactional_id=LEDGER.part(0, 0)).producer
    reply = driver.prepare(producer, RUN, 0, transactional_id=LEDGER.part(0, 0))
    assert reply.error is ErrorCode.INVALID_TXN_STATE


def test_deleting_a_ledger_aborts_its_open_parts(driver):
    driver.register(RUN, 0)
    part = driver.prepared_part(RUN, 0, 0)
    deleted = driver.ask(DeleteLedger, ledger=LEDGER)
    assert driver.replies[deleted].error is ErrorCode.NONE
    assert driver.rules.ledgers.values == {}
    assert states(driver) == {part.transactional_id: TxnState.COMPLETE_ABORT}
    again = driver.ask(DeleteLedger, ledger=LEDGER)
    assert driver.replies[again].error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    driver.crash()


def test_ledgers_count_towards_the_limit_of_transactional_ids():
    full = TransactionDriver(id_count_max=1)
    full.register(RUN, 0)
    other = full.ask(RegisterRun, ledger=LedgerId("other", "query"), run_id=RUN, batch_id=0)
    assert full.replies[other].error is ErrorCode.POLICY_VIOLATION
    assert full.init(transactional_id="x").error is ErrorCode.POLICY_VIOLATION


def test_the_number_of_remembered_fenced_runs_is_bounded(driver):
    for number in range(FENCED_RUNS_MAX + 2):
        assert driver.register(f"run-{number}", 0).verdict is Verdict.UNDECIDED
    assert driver.register("run-1", 0).verdict is Verdict.FENCED
    assert len(driver.rules.ledgers.values[LEDGER].fenced_run_ids) == FENCED_RUNS_MAX
