"""Who adds a partition to a transaction: the broker, or the client itself, and then the broker asks whether it did."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm.records.encoder import encode_batch
from klamm_broker.log.verification import VerificationGuard
from klamm_broker.rpc.transaction_guards import TransactionGuards

HERE = TopicPartition("flights", 0)
RECORDS = memoryview(
    bytes(encode_batch([(0, None, b"v", ())], producer_id=7, producer_epoch=3, base_sequence=0, is_transactional=True))
)


@pytest.mark.parametrize("verify_only", [False, True])
def test_the_coordinator_is_asked_to_add_a_partition_or_whether_the_client_did(verify_only: bool) -> None:
    asked: list[Any] = []

    async def ask(
        transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[TopicPartition], only: bool
    ) -> dict[TopicPartition, BrokerError]:
        asked.append((transactional_id, producer_id, epoch, list(partitions), only))
        return {HERE: ErrorCode.TRANSACTION_ABORTABLE.exception("not part of it")} if only else {}

    guard = VerificationGuard(7, 3, 0, 0)
    guards = TransactionGuards(SimpleNamespace(begin_verification=lambda *_: guard), ask)  # type: ignore[arg-type]
    found = asyncio.run(guards.of("tx", [(HERE, RECORDS)], verify_only=verify_only))
    assert asked == [("tx", 7, 3, [HERE], verify_only)]
    if verify_only:
        refused = found[HERE]
        assert isinstance(refused, BrokerError)
        assert refused.code is ErrorCode.TRANSACTION_ABORTABLE
    else:
        assert found == {HERE: guard}
