"""Tests that controllers with an authorizer log a warning about a broker without one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.wire.v1.controller_pb2 import RegisterBrokerRequest, RegisterResponse
from klamm_controller.rpc.nodes import NodesRpcs


class Everything:
    """A gateway without controllers that lets every broker register."""

    async def register(self, request: RegisterBrokerRequest) -> RegisterResponse:
        return RegisterResponse(epoch=7)

    async def answer(self, decided: Any, response: Any) -> Any:
        return await decided

    def quorum_for_servers(self) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("has_authorizer", "configs", "is_told"),
    [
        (True, {}, True),
        (True, {"authorizer.class.name": "StandardAuthorizer"}, False),
        (False, {}, False),
    ],
)
def test_a_broker_without_an_authorizer_is_logged_if_the_controller_has_one(
    has_authorizer: bool, configs: dict[str, str], is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    everything: Any = Everything()
    nodes = NodesRpcs(everything, everything, everything, has_authorizer=has_authorizer)
    request = RegisterBrokerRequest(broker_id=3, static_configs=configs)
    context: Any = None
    assert asyncio.run(nodes.register_broker(request, context)).epoch == 7
    assert ("broker=3 registers without authorizer.class.name" in caplog.text) == is_told
