"""Tests that a client above its quota gets its answer and throttle time at once, but is not read for that time."""

from __future__ import annotations

import asyncio
import struct

import pytest

from klamm.acls import ANONYMOUS, CLUSTER_NAME, AclOperation, ResourceType
from klamm.quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    QuotaEntity,
)
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.net.connection import Answer
from klamm_broker.kafka.net.throttle import Throttle
from klamm_broker.kafka.requests import Request
from klamm_server.runtime.waiting import Waiting
from klamm_server.security.acls.authorizer import StandardAuthorizer
from klamm_server.security.gate import Gate
from klamm_server.security.quotas.client_quotas import ClientQuotas
from klamm_server.security.quotas.rate_window import WindowSpan
from tests.support.callers import allow, index_of
from tests.support.kafka_listener import HEARTBEAT_V0, ServedListener, answer_to
from tests.support.waiting import settle, until

SLOW: QuotaEntity = (("client-id", "slow"),)
SPAN = WindowSpan(windows=2, window_ms=200)


class StillClock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now_ms = 5_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


def quotas_of(span: WindowSpan = SPAN, **limits: float) -> ClientQuotas:
    quotas = ClientQuotas(span)
    quotas.apply({SLOW: limits})
    return quotas


def frame(
    number: int, client_id: bytes = b"slow", api_key: ApiKey = ApiKey.HEARTBEAT, version: int = 0, rest: bytes = b""
) -> bytes:
    message = HEARTBEAT_V0.pack(api_key, version, number, len(client_id)) + client_id + rest
    return struct.pack(">i", len(message)) + message


def told(request: Request) -> Answer:
    """Answers with the throttle time."""
    return [b"%d" % request.throttle_ms]


def test_a_throttled_connection_is_not_read_and_other_clients_are_served() -> None:
    async def scenario() -> None:
        def handle(request: Request) -> Answer:
            if request.client_id == "slow":
                assert request.throttle is not None
                request.throttle.ms = 3_600_000
            return told(request)

        async with ServedListener(handle, quotas=quotas_of(request_percentage=100.0)) as served:
            reader, writer = await served.connect()
            writer.write(frame(1) + frame(2))
            assert await answer_to(reader) == (1, b"3600000")
            for number in range(50):
                other_reader, other = await served.connect()
                other.write(frame(number, b"other"))
                assert await answer_to(other_reader) == (number, b"0")
                other.close()
            following = asyncio.ensure_future(answer_to(reader))
            await settle()
            assert not following.done()
            following.cancel()
        # The listener has closed while the client was throttled.
        writer.close()

    asyncio.run(scenario())


def test_the_request_time_of_a_request_throttles_the_next_one() -> None:
    async def scenario() -> None:
        span = WindowSpan(windows=11, window_ms=60_000)
        async with ServedListener(told, quotas=quotas_of(span, request_percentage=1e-12)) as served:
            reader, writer = await served.connect()
            writer.write(frame(1) + frame(2))
            assert await answer_to(reader) == (1, b"0")
            assert await answer_to(reader) == (2, b"60000"), "a window at most"
            writer.close()

    asyncio.run(scenario())


def test_a_produce_is_charged_when_it_arrives() -> None:
    async def scenario() -> None:
        size = len(frame(1, api_key=ApiKey.PRODUCE, version=3)) - 4
        span = WindowSpan(windows=11, window_ms=60_000)
        async with ServedListener(told, quotas=quotas_of(span, producer_byte_rate=size / 700)) as served:
            reader, writer = await served.connect()
            writer.write(frame(1, api_key=ApiKey.PRODUCE, version=3))
            _, rest_ms = await answer_to(reader)
            assert 90_000 <= int(rest_ms) <= 170_000, "700 s of the rate within ten minutes"
            writer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("operation", "is_counted"),
    [(AclOperation.CLUSTER_ACTION, False), (AclOperation.ALTER, False), (AclOperation.DESCRIBE, True), (None, True)],
)
def test_write_txn_markers_is_counted_unless_the_client_has_the_right_to_it(
    operation: AclOperation | None, is_counted: bool
) -> None:
    """Otherwise a client without that right could use the broker's time without any limit."""
    acls = [] if operation is None else [allow(operation, ResourceType.CLUSTER, CLUSTER_NAME, ANONYMOUS)]
    index = index_of(acls)
    authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
    counted: list[bool] = []

    def handle(request: Request) -> Answer:
        counted.append(request.throttle is not None)
        return told(request)

    async def scenario() -> None:
        quotas = quotas_of(request_percentage=100.0)
        async with ServedListener(handle, quotas=quotas, gate=Gate(authorizer, lambda: index)) as served:
            reader, writer = await served.connect()
            writer.write(frame(1, api_key=ApiKey.WRITE_TXN_MARKERS, version=1, rest=b"\x00"))
            await reader.readexactly(4)
            writer.close()

    asyncio.run(scenario())
    assert counted == [is_counted]


@pytest.mark.parametrize("quotas", [None, ClientQuotas(WindowSpan())])
def test_without_quotas_requests_have_no_throttle(quotas: ClientQuotas | None) -> None:
    async def scenario() -> None:
        def handle(request: Request) -> Answer | Waiting[Answer]:
            assert request.throttle is None
            return told(request)

        async with ServedListener(handle, quotas=quotas) as served:
            reader, writer = await served.connect()
            writer.write(frame(1))
            assert await answer_to(reader) == (1, b"0")
            writer.close()

    asyncio.run(scenario())


def throttle(quotas: ClientQuotas, client_id: str = "slow") -> Throttle:
    return Throttle(quotas, StillClock(), "User:ANONYMOUS", client_id)


def test_a_fetch_over_quota_is_throttled_and_its_bytes_are_not_charged() -> None:
    quotas = quotas_of(consumer_byte_rate=1000.0)
    one = throttle(quotas)
    assert one.fetch_max_bytes(10**6) == 200, "a window of 200 ms"
    assert one.fetch_max_bytes(10) == 10
    assert one.charge_fetch(200)
    assert one.ms == 0
    for _ in range(3):
        other = throttle(quotas)
        assert not other.charge_fetch(100)
        assert other.ms == 100
    assert throttle(quotas, "fast").charge_fetch(10**9)
    assert throttle(quotas, "fast").fetch_max_bytes(10**9) == 10**9


def test_a_fetch_of_a_client_over_its_request_time_quota_returns_no_records() -> None:
    quotas = quotas_of(consumer_byte_rate=1000.0, request_percentage=1.0)
    throttle(quotas).charge_time(1.0)
    late = throttle(quotas)
    assert late.ms == SPAN.window_ms
    assert not late.charge_fetch(1)
    assert quotas.charge(CONSUMER_BYTE_RATE, "ANONYMOUS", "slow", 200, 5_000) == 0, "the fetch did not count"


def test_the_longest_throttle_time_of_all_quotas_applies() -> None:
    quotas = quotas_of(producer_byte_rate=1000.0, request_percentage=1.0)
    one = throttle(quotas)
    one.charge_time(1.0)
    one = throttle(quotas)
    one.charge_produce(300)
    assert one.ms == SPAN.window_ms
    one.charge_produce(400)
    assert one.ms == 500


def test_produce_bytes_and_fetch_bytes_are_charged_to_separate_quotas() -> None:
    quotas = quotas_of(producer_byte_rate=1000.0, consumer_byte_rate=1000.0)
    throttle(quotas).charge_produce(200)
    assert throttle(quotas).charge_fetch(200)
    assert quotas.throttle_ms(PRODUCER_BYTE_RATE, "ANONYMOUS", "slow", 5_000) == 0


def test_a_client_that_leaves_while_its_connection_is_delayed_is_removed() -> None:
    async def scenario() -> None:
        quotas = ClientQuotas(WindowSpan(windows=2, window_ms=1_000))
        quotas.apply({(("ip", None),): {"connection_creation_rate": 0.001}})
        async with ServedListener(told, quotas=quotas) as served:
            for _ in range(3):
                _, writer = await served.connect()
                writer.close()
            await until(lambda: not len(served.listener), "a connection is still there")

    asyncio.run(scenario())
