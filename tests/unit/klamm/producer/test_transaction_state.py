"""Tests which calls a transactional producer permits in each state, and its errors for the others."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.errors import AbortableTransactionError, ErrorCode, FatalProducerError, IllegalStateError, KlammError
from klamm.producer.transaction_state import TransactionPhase, TransactionState

FENCED = ErrorCode.PRODUCER_FENCED.exception()
LOST = ErrorCode.INVALID_RECORD.exception("garbage")


def state_in(phase: TransactionPhase) -> TransactionState:
    state = TransactionState("payments")
    ways = {
        TransactionPhase.INITIALIZING: "i",
        TransactionPhase.READY: "ir",
        TransactionPhase.IN_TRANSACTION: "irb",
        TransactionPhase.COMMITTING: "irbc",
        TransactionPhase.PREPARING: "irbp",
        TransactionPhase.PREPARED: "irbpP",
        TransactionPhase.ABORTING: "irba",
        TransactionPhase.ABORTABLE_ERROR: "irbf",
        TransactionPhase.FATAL_ERROR: "F",
    }
    for step in ways.get(phase, ""):
        STEPS[step](state)
    assert state.phase is phase
    return state


STEPS = {
    "i": TransactionState.begin_initializing,
    "r": TransactionState.become_ready,
    "b": TransactionState.begin,
    "s": lambda state: state.require_open("send"),
    "c": TransactionState.begin_commit,
    "p": TransactionState.begin_prepare,
    "P": TransactionState.become_prepared,
    "a": TransactionState.begin_abort,
    "f": lambda state: state.fail(LOST),
    "F": lambda state: state.fail_fatally(FENCED),
}
P = TransactionPhase


@pytest.mark.parametrize(
    ("step", "allowed"),
    [
        ("i", {P.UNINITIALIZED, P.PREPARED}),
        ("b", {P.READY}),
        ("s", {P.IN_TRANSACTION}),
        ("c", {P.IN_TRANSACTION}),
        ("p", {P.IN_TRANSACTION}),
        ("a", {P.IN_TRANSACTION, P.ABORTABLE_ERROR}),
    ],
)
@pytest.mark.parametrize("phase", list(TransactionPhase))
def test_a_call_in_the_wrong_phase_raises_the_error_of_the_phase(step, allowed, phase):
    state = state_in(phase)
    if phase in allowed:
        STEPS[step](state)
        return
    with pytest.raises(KlammError) as raised:
        STEPS[step](state)
    expected = {P.ABORTABLE_ERROR: AbortableTransactionError, P.FATAL_ERROR: FatalProducerError}
    assert type(raised.value) is expected.get(phase, IllegalStateError)
    assert "payments" in str(raised.value)
    assert state.phase is phase


@pytest.mark.parametrize(
    ("phase", "text"),
    [
        (P.UNINITIALIZED, "call init_transactions first"),
        (P.READY, "call begin_transaction first"),
        (P.COMMITTING, "is committing"),
    ],
)
def test_the_error_of_a_call_out_of_turn_says_what_to_do(phase, text):
    with pytest.raises(IllegalStateError, match=f"send: .*{text}"):
        state_in(phase).require_open("send")


def test_a_failure_is_named_until_the_transaction_is_aborted():
    state = state_in(P.IN_TRANSACTION)

    assert state.fail(LOST)
    assert not state.fail(ErrorCode.MESSAGE_TOO_LARGE.exception())

    with pytest.raises(AbortableTransactionError, match="garbage") as raised:
        state.begin_commit()
    assert raised.value.__cause__ is LOST
    state.begin_abort()
    assert not state.fail(LOST)
    state.become_ready()
    state.begin()
    state.begin_commit()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    ],
)
def test_fatal_errors_end_the_producer(code):
    state = state_in(P.IN_TRANSACTION)

    assert state.fail(code.exception())

    with pytest.raises(FatalProducerError):
        state.begin_abort()


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.MESSAGE_TOO_LARGE]
)
def test_other_errors_make_the_transaction_abortable(code):
    state = state_in(P.COMMITTING)

    assert state.fail(code.exception())

    assert state.phase is P.ABORTABLE_ERROR


def test_a_transaction_has_begun_only_after_its_first_send():
    state = state_in(P.IN_TRANSACTION)
    assert not state.has_begun
    state.require_open("send")
    assert state.has_begun
    state.begin_commit()
    state.become_ready()
    assert not state.has_begun


@settings(deadline=None)
@given(st.text(alphabet="".join(STEPS), max_size=20))
def test_after_a_failure_only_an_abort_is_possible_in_any_order_of_calls(calls):
    state = TransactionState("payments")
    for call in calls:
        before = state.phase
        if call == "r" and before not in (P.INITIALIZING, P.COMMITTING, P.ABORTING):
            continue
        if call == "P" and before is not P.PREPARING:
            continue
        try:
            STEPS[call](state)
        except KlammError:
            assert state.phase is before
        if before is P.FATAL_ERROR:
            assert state.phase is P.FATAL_ERROR
        if before is P.ABORTABLE_ERROR:
            assert state.phase in (P.ABORTABLE_ERROR, P.ABORTING, P.FATAL_ERROR)
        assert state.is_lost == (state.phase in (P.ABORTING, P.ABORTABLE_ERROR, P.FATAL_ERROR))
