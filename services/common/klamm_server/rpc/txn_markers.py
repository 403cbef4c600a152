"""Checks the marker of a transaction before a server writes it (KIP-98, KIP-1228)."""

from __future__ import annotations

from typing import Final, Protocol

from klamm.errors import EXCEPTIONS, ErrorCode

PRODUCER_EPOCH_MAX: Final = (1 << 15) - 1
_InvalidRequestError = EXCEPTIONS[ErrorCode.INVALID_REQUEST]


class EndedTransaction(Protocol):
    """The fields of a marker about the producer, and about the coordinator that ended the transaction."""

    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def coordinator_epoch(self) -> int: ...
    @property
    def transaction_version(self) -> int: ...


def check_marker(marker: EndedTransaction) -> None:
    """Raises InvalidRequestError for a marker that no transaction can have."""
    if marker.producer_id < 0 or not 0 <= marker.producer_epoch <= PRODUCER_EPOCH_MAX:
        raise _InvalidRequestError(
            f"a marker has producer id {marker.producer_id} and epoch {marker.producer_epoch}; expected an id from 0 on"
            f" and an epoch from 0 to {PRODUCER_EPOCH_MAX}"
        )
    if marker.coordinator_epoch < 0 or marker.transaction_version < 0:
        raise _InvalidRequestError(
            f"a marker has coordinator epoch {marker.coordinator_epoch} and transaction version"
            f" {marker.transaction_version}; expected 0 or more"
        )
