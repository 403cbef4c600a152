from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import GROUP_METADATA_TOPIC
from klamm.quotas import CONSUMER_BYTE_RATE
from klamm_broker.grpc import throttle
from klamm_broker.grpc.throttle import GrpcThrottle
from klamm_server.security.peer_principals import LOGGED_IN
from klamm_server.security.quotas.client_quotas import ClientQuotas
from klamm_server.security.quotas.rate_window import WindowSpan
from klamm_server.security.session import CALLER
from tests.support.loop_time import run_without_waiting

KEY = CONSUMER_BYTE_RATE
Exceeded = EXCEPTIONS[ErrorCode.THROTTLING_QUOTA_EXCEEDED]


class StillClock:
    """A clock that never moves."""

    def monotonic_ms(self) -> int:
        return 5_000

    def wall_ms(self) -> int:
        return 5_000


def throttle_of(limit: float | None, *, knows_callers: bool = False) -> GrpcThrottle:
    quotas = ClientQuotas(WindowSpan(windows=2, window_ms=100))
    quotas.apply({} if limit is None else {(("user", None),): {KEY: limit}})
    return GrpcThrottle(quotas, StillClock(), knows_callers=knows_callers)


def user_of(one: GrpcThrottle, topics: list[str], caller: Any = None) -> str | None:
    token = CALLER.set(caller)
    try:
        return one.user(topics)
    finally:
        CALLER.reset(token)


def test_a_call_uses_the_quota_of_its_user_and_calls_of_servers_use_none() -> None:
    alice = SimpleNamespace(principal="User:alice")
    assert user_of(throttle_of(None), ["t"]) is None, "nothing is set"
    assert user_of(throttle_of(1.0), ["t"]) == "ANONYMOUS"
    assert user_of(throttle_of(1.0), ["t"], alice) == "alice"
    assert user_of(throttle_of(1.0, knows_callers=True), ["t"], alice) == "alice"
    assert user_of(throttle_of(1.0, knows_callers=True), ["t"]) is None, "a server"
    assert user_of(throttle_of(1.0), [GROUP_METADATA_TOPIC]) is None, "a coordinator"
    assert user_of(throttle_of(1.0), [GROUP_METADATA_TOPIC, "t"]) == "ANONYMOUS"


@pytest.mark.parametrize("knows_callers", [True, False])
def test_a_user_that_has_logged_in_has_a_quota_without_an_authorizer_and_as_a_super_user(knows_callers: bool) -> None:
    token = LOGGED_IN.set("User:alice")
    try:
        assert user_of(throttle_of(1.0, knows_callers=knows_callers), ["t"]) == "alice"
    finally:
        LOGGED_IN.reset(token)


def test_a_client_without_charges_does_not_wait() -> None:
    one = throttle_of(1000.0)
    asyncio.run(one.wait_turn(KEY, "u", "c"))
    assert one.charge(KEY, "u", "c", 100) == 0
    assert one.charge(KEY, "u", "c", 100) == 100


def test_a_client_waits_for_the_rest_of_its_throttle_time() -> None:
    async def scenario() -> None:
        one = throttle_of(1000.0)
        one.charge(KEY, "u", "c", 400)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await one.wait_turn(KEY, "u", "c")
        assert loop.time() - began_s == pytest.approx(0.3)

    run_without_waiting(scenario())


def test_a_call_whose_throttle_time_is_too_long_is_refused() -> None:
    one = throttle_of(1.0)
    one.charge(KEY, "u", "c", 100)
    with pytest.raises(Exceeded, match=KEY):
        asyncio.run(one.wait_turn(KEY, "u", "c"))


@pytest.mark.parametrize(("name", "bound"), [("WAITING_MAX", 2), ("WAITING_BYTES_MAX", 2_000)])
def test_the_number_and_the_bytes_of_waiting_calls_are_bounded(
    monkeypatch: pytest.MonkeyPatch, name: str, bound: int
) -> None:
    monkeypatch.setattr(throttle, name, bound)

    async def scenario() -> None:
        one = throttle_of(1000.0)
        one.charge(KEY, "u", "c", 20_000)
        waiting = [asyncio.ensure_future(one.wait_turn(KEY, "u", "c", 1_000)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Exceeded):
            await one.wait_turn(KEY, "u", "c", 1_000)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        again = asyncio.ensure_future(one.wait_turn(KEY, "u", "c", 1_000))
        await asyncio.sleep(0)
        assert not again.done(), "those who have gone leave room"
        again.cancel()

    asyncio.run(scenario())
