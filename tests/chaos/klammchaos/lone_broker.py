"""A broker that controllers know as registered and alive, so that topics can be placed. It has no process."""

from __future__ import annotations

from typing import Any, Final

import grpc
from grpc import aio

from klamm.errors import ErrorCode
from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.controller_pb2 import BrokerHeartbeatRequest, RegisterBrokerRequest
from klamm.wire.v1.controller_rpc import CONTROLLER
from tests.support.raw_stub import RawStub
from tests.support.waiting import patience, until

BROKER_ID: Final = 1
_INCARNATION: Final = bytes(15) + b"\x01"


async def register(address: str) -> None:
    """Registers a broker with the controller at `address`, which must be active or about to become active. Raises
    AssertionError."""
    async with aio.insecure_channel(address) as channel:
        stub = RawStub(channel, CONTROLLER)
        registration = RegisterBrokerRequest(
            broker_id=BROKER_ID,
            incarnation_id=_INCARNATION,
            endpoint=Endpoint(host="127.0.0.1", port=9),
            log_dir_ids=[_INCARNATION],
        )
        registered = await _call(stub.register_broker, registration)
        heartbeat = BrokerHeartbeatRequest(
            broker_id=BROKER_ID, broker_epoch=registered.epoch, metadata_end_index=registered.epoch + 1
        )
        answer = await _call(stub.broker_heartbeat, heartbeat)
        assert not answer.fenced, answer


async def _call(method: Any, request: Any) -> Any:
    story: str | None = None

    async def answer() -> Any:
        nonlocal story
        try:
            response = await method(request, timeout=patience())
        except grpc.RpcError as error:
            story = error.details()
            return None
        story = ErrorCode.of(response.error_code).name
        return None if response.error_code else response

    return await until(answer, lambda: story, pause_s=0.05)
