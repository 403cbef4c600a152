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
    """Where it may have written."""
    prepared_ms: int = 0
    """When the open transaction was prepared, in ms since the epoch; 0: it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """What a partition's leader remembers of a producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    """The coordinator epoch of the producer's last marker; -1: there was none."""
    current_txn_start_offset: int
    """Where the open transaction begins; -1: no transaction is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingTransaction:
    """A transaction that is open in a partition, but unknown to all coordinators. No server will end it, so the last
    stable offset cannot pass it."""

    tp: TopicPartition
    producer: ProducerState
