"""Tests how a partition joins a transaction: added by the broker, or by the client and verified by the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm.records.encoder import encode_batch
from klamm_broker.handlers import transaction_guards
from klamm_broker.handlers.transaction_guards import TransactionGuards
from klamm_broker.log.producers.verification import VerificationGuard
from tests.support.callers import called_with

HERE = TopicPartition("flights", 0)
RECORDS = memoryview(
    bytes(encode_batch([(0, None, b"v", ())], producer_id=7, producer_epoch=3, base_sequence=0, is_transactional=True))
)


@pytest.mark.parametrize("verify_only", [False, True])
def test_the_coordinator_adds_the_partition_or_verifies_that_the_client_added_it(verify_only: bool) -> None:
    asked: list[Any] = []

    async def ask(
        transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[TopicPartition], only: bool
    ) -> dict[TopicPartition, BrokerError]:
        asked.append((transactional_id, producer_id, epoch, list(partitions), only))
        return {HERE: ErrorCode.TRANSACTION_ABORTABLE.exception("not part of it")} if only else {}

    guard = VerificationGuard(7, 3, 0, 0)
    guards = TransactionGuards(SimpleNamespace(begin_verification=lambda *_: guard), ask)
    found = asyncio.run(guards.of("tx", [(HERE, RECORDS)], verify_only=verify_only))
    assert asked == [("tx", 7, 3, [HERE], verify_only)]
    if verify_only:
        refused = found[HERE]
        assert isinstance(refused, BrokerError)
        assert refused.code is ErrorCode.TRANSACTION_ABORTABLE
    else:
        assert found == {HERE: guard}


def test_an_open_transaction_accepts_appends_only_of_its_own_transactional_id() -> None:
    """The broker asks the coordinator once which id the producer belongs to.

    It does not ask for a client without rights.
    """
    asked: list[tuple[str, bool]] = []

    async def ask(
        transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[TopicPartition], only: bool
    ) -> dict[TopicPartition, BrokerError]:
        asked.append((transactional_id, only))
        if transactional_id == "owner":
            return {}
        return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING.exception("another's"))

    def of(transactional_id: str) -> Any:
        found = asyncio.run(guards.of(transactional_id, [(HERE, RECORDS)], verify_only=False))
        return found[HERE].code if found else None

    guards = TransactionGuards(SimpleNamespace(begin_verification=lambda *_: None), ask)
    assert of("thief") is None
    assert not asked
    with called_with():
        assert [of(each) for each in ("owner", "owner", "thief", "owner", "thief")] == [
            *(None, None, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            *(None, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ]
    assert asked == [("owner", True), ("thief", True), ("thief", True)]


def test_verified_transactional_ids_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    async def ask(
        transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[TopicPartition], only: bool
    ) -> dict[TopicPartition, BrokerError]:
        asked.append(producer_id)
        return {}

    monkeypatch.setattr(transaction_guards, "PRODUCERS_MAX", 2)
    guards = TransactionGuards(SimpleNamespace(begin_verification=lambda *_: None), ask)
    with called_with():
        for producer_id in (1, 2, 1, 3, 2, 1):
            records = encode_batch(
                [(0, None, b"v", ())], producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
            )
            asyncio.run(guards.of("tx", [(HERE, memoryview(bytes(records)))], verify_only=False))
    assert asked == [1, 2, 3, 1]
