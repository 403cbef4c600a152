"""Transactional ids, and the state that partitions keep of their producers."""

from __future__ import annotations

from dataclasses import dataclass

from klamm.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    transactional_id: str
    producer_id: int
    state: str
    """Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit or CompleteAbort."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    start_time_ms: int
    """When the open transaction began, in ms since the epoch; -1: none is open."""
    partitions: tuple[TopicPartition, ...]
    """The partitions that the open transaction may have written to."""
    prepared_ms: int = 0
    """The time at which the open transaction was prepared, in ms since the epoch, or 0 if it is not prepared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """The state that a partition's leader keeps of a producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    """The coordinator epoch of the producer's last marker; -1: there was none."""
    current_txn_start_offset: int
    """The first offset of the open transaction, or -1 if no transaction is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingTransaction:
    """A transaction that is open in a partition, but unknown to all coordinators. No server will end it, so the last
    stable offset cannot pass it."""

    tp: TopicPartition
    producer: ProducerState
