"""The states of a transactional id, with Kafka's names and numbers, and the transitions between them.

                    ┌────────────────────────────┐
                    ▼                            │
    new ──► EMPTY ──► ONGOING ──► PREPARE_COMMIT ──► COMPLETE_COMMIT ─┐
              │  ▲        │ ▲                                         │
              │  │        │ └──────────────── the next transaction ───┤
              │  │        ▼                                           │
              └──┼──► PREPARE_ABORT ──────────► COMPLETE_ABORT ───────┤
                 └─────────────── a producer that starts again ───────┘

An id that has expired is deleted. Kafka's Dead and PrepareEpochFence never reach the log, and are not needed here.
"""

from __future__ import annotations

import enum


class TxnState(enum.IntEnum):
    """The state of a transactional id. Kafka's tools show the name in `text`."""

    text: str

    def __new__(cls, value: int, text: str) -> TxnState:
        member = int.__new__(cls, value)
        member._value_ = value
        member.text = text
        return member

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"

    @property
    def is_decided(self) -> bool:
        """True while the outcome is durable and the markers are being sent to the partitions."""
        return self in (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """True while no transaction is open or being ended."""
        return self in (TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT)


STATES: dict[int, TxnState] = {state.value: state for state in TxnState}
_IDLE = frozenset({TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT})
PREDECESSORS: dict[TxnState, frozenset[TxnState]] = {
    TxnState.EMPTY: _IDLE,
    TxnState.ONGOING: _IDLE | {TxnState.ONGOING},
    TxnState.PREPARE_COMMIT: frozenset({TxnState.ONGOING}),
    # An abort without a transaction ends the epoch, because a write of it may still be on its way (KIP-890).
    TxnState.PREPARE_ABORT: _IDLE | {TxnState.ONGOING},
    TxnState.COMPLETE_COMMIT: frozenset({TxnState.PREPARE_COMMIT}),
    TxnState.COMPLETE_ABORT: frozenset({TxnState.PREPARE_ABORT}),
}
