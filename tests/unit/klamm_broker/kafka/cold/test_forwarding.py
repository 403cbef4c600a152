"""Tests how a broker forwards requests that another server refuses."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from klamm.errors import BrokerError, ErrorCode
from klamm_broker.kafka.cold import forwarding
from klamm_broker.kafka.cold.forwarding import ActiveController, Coordinators
from klamm_server.runtime.clock import SystemClock

NOTHING: Any = None
REFUSALS = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.POLICY_VIOLATION]


class Refusing:
    """A controller or coordinator that refuses each call, and counts the calls."""

    def __init__(self, code: ErrorCode) -> None:
        self.code = code
        self.calls = 0

    async def ask(self, *asked: object, timeout_ms: int) -> object:
        self.calls += 1
        raise self.code.exception("refused")

    def owner_of(self, topic: str, shard: int) -> object:
        return self


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refusal_of_the_controller_is_not_retried(code: ErrorCode, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = Refusing(code)
    monkeypatch.setattr(forwarding, "ControllerChannel", lambda *_: refusing)
    controller = ActiveController(NOTHING, NOTHING, NOTHING, SystemClock(), random.Random(1))
    with pytest.raises(BrokerError, match="refused") as raised:
        asyncio.run(controller.ask(_create_topics, NOTHING, timeout_ms=200))
    assert raised.value.code is code
    assert refusing.calls == 1


@pytest.mark.parametrize("code", REFUSALS)
def test_a_client_gets_the_refusal_of_a_coordinator(code: ErrorCode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "CoordinatorChannels", lambda *_: Refusing(code))
    coordinators = Coordinators(NOTHING, NOTHING, NOTHING)
    with pytest.raises(BrokerError, match="refused") as raised:
        asyncio.run(coordinators.ask_owner("t", 0, Refusing.ask, NOTHING, timeout_ms=200))
    assert raised.value.code is code


async def _create_topics(*_: object, timeout_ms: int) -> Any:
    raise AssertionError("the channel makes the call")
