"""The states of a transactional producer (Kafka's TransactionManager), and the calls that each state allows.

    UNINITIALIZED --init--> INITIALIZING --> READY --begin--> IN_TRANSACTION --commit--> COMMITTING --> READY
                                               ^                |  |                         |
                                               |                |  '----------failure--------|
                                               |          abort |                            v
                                            ABORTING <----------+---------------- ABORTABLE_ERROR
    IN_TRANSACTION --prepare--> PREPARING --> PREPARED --init--> INITIALIZING    a ledger decides (klamm.batches)
    any state --fatal failure--> FATAL_ERROR

After its first failure, nothing more of a transaction is sent, and the part that the brokers have is aborted.

Pure. The producer's lock guards it, because `send` reads it in the application's threads."""

from __future__ import annotations

import enum
from typing import Final

from klamm.errors import AbortableTransactionError, BrokerError, ErrorCode, FatalProducerError, IllegalStateError


class TransactionPhase(enum.Enum):
    """The phases of a transactional producer. The module's docstring has the transitions."""

    UNINITIALIZED = "is not initialized: call init_transactions first"
    INITIALIZING = "is being initialized"
    READY = "has no open transaction: call begin_transaction first"
    IN_TRANSACTION = "has an open transaction"
    COMMITTING = "is committing"
    PREPARING = "is preparing its transaction"
    PREPARED = "has a prepared transaction: call init_transactions before the next one"
    ABORTING = "is aborting"
    ABORTABLE_ERROR = "has a transaction that can only be aborted"
    FATAL_ERROR = "can only be closed"


_P = TransactionPhase
_BEFORE: Final[dict[TransactionPhase, frozenset[TransactionPhase]]] = {
    _P.INITIALIZING: frozenset({_P.UNINITIALIZED, _P.PREPARED}),
    _P.READY: frozenset({_P.INITIALIZING, _P.COMMITTING, _P.ABORTING}),
    _P.IN_TRANSACTION: frozenset({_P.READY}),
    _P.COMMITTING: frozenset({_P.IN_TRANSACTION}),
    _P.PREPARING: frozenset({_P.IN_TRANSACTION}),
    _P.PREPARED: frozenset({_P.PREPARING}),
    _P.ABORTING: frozenset({_P.IN_TRANSACTION, _P.ABORTABLE_ERROR}),
    _P.ABORTABLE_ERROR: frozenset({_P.IN_TRANSACTION, _P.COMMITTING, _P.PREPARING}),
    _P.FATAL_ERROR: frozenset(_P) - {_P.FATAL_ERROR},
}
"""The phases from which each phase may be reached."""

FATAL_CODES: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Error codes of a produce request after which the producer cannot continue, not even with another transaction."""


class TransactionState:
    """The phase of one producer's transaction, and which calls that phase allows."""

    def __init__(self, transactional_id: str) -> None:
        self.phase = TransactionPhase.UNINITIALIZED
        self.has_begun = False
        """True if the open transaction has records or offsets, so that its coordinator must be told how it ends."""
        self.transactional_id = transactional_id
        self._error: Exception | None = None

    @property
    def is_open(self) -> bool:
        """True while a transaction is neither committed nor aborted."""
        return self.phase in (TransactionPhase.IN_TRANSACTION, TransactionPhase.ABORTABLE_ERROR)

    @property
    def is_lost(self) -> bool:
        """True if the transaction is aborted or must be aborted, so that nothing more of it is sent."""
        return self.phase in (
            TransactionPhase.ABORTING,
            TransactionPhase.ABORTABLE_ERROR,
            TransactionPhase.FATAL_ERROR,
        )

    def begin_initializing(self, transactional_id: str | None = None) -> None:
        """Begins init_transactions, for `transactional_id` from now on if it is given. Raises IllegalStateError."""
        self._require("init_transactions", TransactionPhase.INITIALIZING)
        self._enter(TransactionPhase.INITIALIZING)
        self.transactional_id = transactional_id or self.transactional_id

    def begin(self) -> None:
        """Begins a transaction. Raises IllegalStateError."""
        self._require("begin_transaction", TransactionPhase.IN_TRANSACTION)
        self._enter(TransactionPhase.IN_TRANSACTION)

    def require_open(self, call: str, *, begins: bool = True) -> None:
        """Checks that a transaction is open, for `send` and similar calls. Afterwards the transaction has begun. Raises
        the errors of `begin_commit`."""
        if self.phase is not TransactionPhase.IN_TRANSACTION:
            self._refuse(call)
        self.has_begun |= begins

    def begin_commit(self) -> None:
        """Begins commit_transaction. Raises IllegalStateError, AbortableTransactionError or FatalProducerError."""
        self._require("commit_transaction", TransactionPhase.COMMITTING)
        self._enter(TransactionPhase.COMMITTING)

    def begin_prepare(self) -> None:
        """Begins prepare_transaction. Raises the errors of `begin_commit`."""
        self._require("prepare_transaction", TransactionPhase.PREPARING)
        self._enter(TransactionPhase.PREPARING)

    def become_prepared(self) -> None:
        """Notes that the transaction is prepared, so that a ledger decides how it ends."""
        self._enter(TransactionPhase.PREPARED)

    def begin_abort(self) -> None:
        """Begins abort_transaction. Raises IllegalStateError or FatalProducerError."""
        self._require("abort_transaction", TransactionPhase.ABORTING)
        self._enter(TransactionPhase.ABORTING)

    def become_ready(self) -> None:
        """Notes that the producer is initialized, or that the transaction is committed or aborted."""
        self._enter(TransactionPhase.READY)
        self.has_begun = False
        self._error = None

    def fail(self, error: Exception) -> bool:
        """Notes that a part of the transaction failed. Returns False if the state does not change, as during an
        abort."""
        if isinstance(error, BrokerError) and error.code in FATAL_CODES:
            return self.fail_fatally(error)
        if self.phase not in _BEFORE[TransactionPhase.ABORTABLE_ERROR]:
            return False
        self._error = error
        self._enter(TransactionPhase.ABORTABLE_ERROR)
        return True

    def fail_fatally(self, error: Exception) -> bool:
        """Notes an error after which the producer cannot continue. Returns False if there was one already."""
        if self.phase is TransactionPhase.FATAL_ERROR:
            return False
        self._error = error
        self._enter(TransactionPhase.FATAL_ERROR)
        return True

    def failure(self) -> Exception:
        """Returns the error for callers that use the transaction, and for its unsent records. Valid when `is_lost`."""
        name = f"transactional.id={self.transactional_id!r}"
        if self.phase is TransactionPhase.FATAL_ERROR:
            error: Exception = FatalProducerError(f"{name} cannot go on: {self._error}")
        elif self._error is not None:
            error = AbortableTransactionError(f"the transaction of {name} has to be aborted: {self._error}")
        else:
            error = AbortableTransactionError(f"the transaction of {name} is aborted")
        error.__cause__ = self._error
        return error

    def _require(self, call: str, phase: TransactionPhase) -> None:
        if self.phase not in _BEFORE[phase]:
            self._refuse(call)

    def _refuse(self, call: str) -> None:
        if self._error is not None and self.is_lost:
            raise self.failure()
        raise IllegalStateError(f"{call}: transactional.id={self.transactional_id!r} {self.phase.value}")

    def _enter(self, phase: TransactionPhase) -> None:
        assert self.phase in _BEFORE[phase], (self.phase, phase)
        self.phase = phase
