"""Tests the delay of a client that has used up a quota, and of connections that come too fast."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest
import uvloop

from klamm.quotas import QuotaEntity
from klamm.setting import INT_MAX
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.net.connection import Answer
from klamm_broker.kafka.requests import Request
from klamm_server.security.quotas.client_quotas import ClientQuotas
from klamm_server.security.quotas.connection_pace import ConnectionPace
from klamm_server.security.quotas.rate_window import WindowSpan
from tests.support.kafka_listener import HEARTBEAT_V0, ServedListener, answer_to, waits

SLOW: QuotaEntity = (("client-id", "slow"),)
REST_MS = 300


def quotas() -> ClientQuotas:
    made = ClientQuotas(WindowSpan(windows=2, window_ms=200))
    made.apply({SLOW: {"request_percentage": 100.0}})
    return made


def frame(number: int) -> bytes:
    client_id = b"slow"
    message = HEARTBEAT_V0.pack(ApiKey.HEARTBEAT, 0, number, len(client_id)) + client_id
    return struct.pack(">i", len(message)) + message


def told(request: Request) -> Answer:
    """Answers with the throttle time."""
    return [b"%d" % request.throttle_ms]


def resting(request: Request) -> Answer:
    """Answers so that the client is throttled after each request but the first."""
    assert request.throttle is not None
    request.throttle.ms = REST_MS if request.correlation_id else 0
    return told(request)


@waits
async def resting_in_time(request: Request) -> Answer:
    await asyncio.sleep(0)
    return resting(request)


def resting_without_answer(request: Request) -> Answer:
    return resting(request) and None if request.correlation_id == 1 else resting(request)


@pytest.mark.parametrize("handle", [resting, resting_in_time])
def test_a_throttled_answer_is_sent_at_once_and_the_next_request_waits(handle: Any) -> None:
    async def scenario() -> None:
        async with ServedListener(handle, quotas=quotas()) as served:
            reader, writer = await served.connect()
            began_s = monotonic()
            writer.write(frame(0) + frame(1) + frame(2))
            assert await answer_to(reader) == (0, b"0")
            assert await answer_to(reader) == (1, b"%d" % REST_MS)
            assert await answer_to(reader) == (2, b"%d" % REST_MS)
            assert monotonic() - began_s >= REST_MS / 1000 * 0.9
            writer.close()

    asyncio.run(scenario())


def test_a_throttled_request_without_an_answer_delays_the_next_request() -> None:
    async def scenario() -> None:
        async with ServedListener(resting_without_answer, quotas=quotas()) as served:
            reader, writer = await served.connect()
            began_s = monotonic()
            writer.write(frame(1) + frame(2))
            assert await answer_to(reader) == (2, b"%d" % REST_MS)
            assert monotonic() - began_s >= REST_MS / 1000 * 0.9
            writer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("by_quota", [True, False], ids=["quota of the address", "pace of the listener"])
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_connection_above_the_creation_rate_is_delayed_and_then_served(
    run: Callable[..., None], by_quota: bool
) -> None:
    async def scenario() -> None:
        # The first connection is free, then one per second is.
        span = WindowSpan(windows=2, window_ms=1_000)
        address_quotas = ClientQuotas(span)
        if by_quota:
            address_quotas.apply({(("ip", "127.0.0.1"),): {"connection_creation_rate": 1.0}})
        pace = ConnectionPace(INT_MAX if by_quota else 1, span)
        async with ServedListener(told, quotas=address_quotas, pace=pace) as served:
            began_s = monotonic()
            clients = [await served.connect() for _ in range(2)]
            for reader, writer in clients:
                writer.write(frame(1))
                assert await answer_to(reader) == (1, b"0")
            # The second connection came within the first second, unless this machine stalled for as long.
            assert monotonic() - began_s >= 0.9
            for _, writer in clients:
                writer.close()

    run(scenario())
