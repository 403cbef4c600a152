from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import GROUP_METADATA_TOPIC
from klamm.quotas import CONSUMER_BYTE_RATE
from klamm_server.rpc import call_throttle as throttle
from klamm_server.rpc.call_throttle import CallThrottle, ThrottledCaller
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


def throttle_of(limit: float | None = None, *, knows_callers: bool = False, **limits: float) -> CallThrottle:
    """Returns a throttle. `limit` is that of `KEY` for each user, and `limits` are those of other quotas."""
    quotas = ClientQuotas(WindowSpan(windows=2, window_ms=100))
    if limit is not None:
        limits[KEY] = limit
    quotas.apply({(("user", None),): limits} if limits else {})
    return CallThrottle(quotas, StillClock(), knows_callers=knows_callers)


def caller_of(one: CallThrottle) -> ThrottledCaller:
    caller = one.caller("c")
    assert caller is not None
    return caller


def charged_user(one: CallThrottle, topics: list[str], caller: Any = None) -> str | None:
    """Returns the user that a call is charged to, or None if it is charged to nobody."""
    token = CALLER.set(caller)
    try:
        throttled = one.caller_about(topics, "c")
    finally:
        CALLER.reset(token)
    if throttled is None:
        return None
    throttled.charge_bytes(KEY, 1_000_000)
    users = ("alice", "ANONYMOUS")
    [user] = [user for user in users if one.quotas.throttle_ms(KEY, user, "c", StillClock().monotonic_ms())]
    return user


def test_a_call_uses_the_quota_of_its_user_and_calls_of_servers_use_none() -> None:
    alice = SimpleNamespace(principal="User:alice")
    assert charged_user(throttle_of(None), ["t"]) is None, "nothing is set"
    assert charged_user(throttle_of(1.0), ["t"]) == "ANONYMOUS"
    assert charged_user(throttle_of(1.0), ["t"], alice) == "alice"
    assert charged_user(throttle_of(1.0, knows_callers=True), ["t"], alice) == "alice"
    assert charged_user(throttle_of(1.0, knows_callers=True), ["t"]) is None, "a server"
    assert charged_user(throttle_of(1.0), [GROUP_METADATA_TOPIC]) is None, "a coordinator"
    assert charged_user(throttle_of(1.0), [GROUP_METADATA_TOPIC, "t"]) == "ANONYMOUS"


@pytest.mark.parametrize("knows_callers", [True, False])
def test_a_user_that_has_logged_in_has_a_quota_without_an_authorizer_and_as_a_super_user(knows_callers: bool) -> None:
    token = LOGGED_IN.set("User:alice")
    try:
        assert charged_user(throttle_of(1.0, knows_callers=knows_callers), ["t"]) == "alice"
    finally:
        LOGGED_IN.reset(token)


def test_a_client_without_charges_does_not_wait() -> None:
    one = caller_of(throttle_of(1000.0))
    asyncio.run(one.wait_turn(KEY))
    assert one.charge_bytes(KEY, 100) == 0
    assert one.charge_bytes(KEY, 100) == 100


def test_a_client_waits_for_the_rest_of_its_throttle_time() -> None:
    async def scenario() -> None:
        one = caller_of(throttle_of(1000.0))
        one.charge_bytes(KEY, 400)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await one.wait_turn(KEY)
        assert loop.time() - began_s == pytest.approx(0.3)

    run_without_waiting(scenario())


def test_a_call_whose_throttle_time_is_too_long_is_refused() -> None:
    one = caller_of(throttle_of(1.0))
    one.charge_bytes(KEY, 100)
    with pytest.raises(Exceeded, match=KEY):
        asyncio.run(one.wait_turn(KEY))


@pytest.mark.parametrize(("name", "bound"), [("WAITING_MAX", 2), ("WAITING_BYTES_MAX", 2_000)])
def test_the_number_and_the_bytes_of_waiting_calls_are_bounded(
    monkeypatch: pytest.MonkeyPatch, name: str, bound: int
) -> None:
    monkeypatch.setattr(throttle, name, bound)

    async def scenario() -> None:
        one = caller_of(throttle_of(1000.0))
        one.charge_bytes(KEY, 20_000)
        waiting = [asyncio.ensure_future(one.wait_turn(KEY, 1_000)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Exceeded):
            await one.wait_turn(KEY, 1_000)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        again = asyncio.ensure_future(one.wait_turn(KEY, 1_000))
        await asyncio.sleep(0)
        assert not again.done(), "those who have gone leave room"
        again.cancel()

    asyncio.run(scenario())


def test_the_time_that_a_call_took_delays_the_next_call_for_one_window_at_most() -> None:
    async def scenario() -> None:
        one = throttle_of(request_percentage=1.0)
        caller_of(one).charge_time(1000.0)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await caller_of(one).wait_turn()
        await caller_of(one).wait_turn(KEY)
        assert loop.time() - began_s == pytest.approx(0.2)

    run_without_waiting(scenario())


def test_a_client_learns_that_it_must_pause_for_its_time() -> None:
    one = throttle_of(1000.0, request_percentage=1.0)
    caller_of(one).charge_time(1000.0)
    assert caller_of(one).charge_bytes(KEY, 100) == 100
    assert caller_of(one).charge_bytes(KEY, 500) == 500, "the longer pause"


def test_a_call_that_uses_little_time_does_not_wait() -> None:
    one = throttle_of(request_percentage=50.0)
    caller_of(one).charge_time(0.01)
    asyncio.run(caller_of(one).wait_turn())


class Context:
    """A call as a transport describes it, which a server may have forwarded."""

    def __init__(self, *, forwarded: bool = False) -> None:
        self._metadata = (("klamm-principal-bin", b"10.0.0.1\nUser:alice"),) if forwarded else ()

    def invocation_metadata(self) -> Any:
        return self._metadata


def test_the_time_of_a_clients_calls_is_charged_but_not_that_of_forwarded_calls() -> None:
    async def answer(request: Any, context: Any) -> str:
        await asyncio.sleep(0)
        return "answered"

    async def scenario() -> None:
        one = throttle_of(request_percentage=1e-6)
        call = one.limited(answer)
        request = SimpleNamespace(client_id="c")
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        token = CALLER.set(SimpleNamespace(principal="User:alice"))
        for _ in range(3):
            assert await call(request, Context(forwarded=True)) == "answered"
        CALLER.reset(token)
        # Without a session, no gate has checked the metadata. So the throttle charges the client.
        assert await call(request, Context(forwarded=True)) == "answered"
        assert loop.time() == began_s
        assert await call(request, Context()) == "answered"
        assert loop.time() - began_s == pytest.approx(one.quotas.span.window_ms / 1000)

    run_without_waiting(scenario())


def test_a_throttle_with_the_newest_quotas_needs_no_one_to_apply_them() -> None:
    newest: dict[Any, Any] = {}
    one = CallThrottle(ClientQuotas(WindowSpan()), StillClock(), knows_callers=False, newest=lambda: newest)
    assert one.caller("c") is None
    newest = {(("user", None),): {KEY: 1.0}}
    assert one.caller("c") is not None
