"""Tests that a marker no transaction can have is refused by name, before anything is written."""

from __future__ import annotations

import pytest

from klamm.errors import BrokerError, ErrorCode
from klamm.wire.v1.common_pb2 import TxnMarker
from klamm_server.rpc.txn_markers import check_marker

GOOD = {"producer_id": 7, "producer_epoch": 0, "coordinator_epoch": 0, "transaction_version": 2}


@pytest.mark.parametrize("producer_epoch", [0, (1 << 15) - 1])
def test_a_marker_with_a_valid_producer_epoch_is_accepted(producer_epoch: int) -> None:
    check_marker(TxnMarker(**{**GOOD, "producer_epoch": producer_epoch}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("producer_id", -1),
        ("producer_epoch", -1),
        ("producer_epoch", 1 << 15),
        ("coordinator_epoch", -1),
        ("transaction_version", -2),
    ],
)
def test_a_marker_with_an_invalid_field_is_refused(name: str, value: int) -> None:
    with pytest.raises(BrokerError, match=str(value)) as refusal:
        check_marker(TxnMarker(**{**GOOD, name: value}))
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
