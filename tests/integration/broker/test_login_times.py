"""Tests a Kafka listener where clients log in: the maximum time of a login, and the life of a session."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from klamm.errors import ErrorCode
from klamm.secret import Secret
from klamm.security.sasl.plain_client import PlainClient
from klamm_server.security.sasl.sasl_authenticator import RENEWAL_MS
from tests.support.kafka_listener import frame
from tests.support.sasl_authenticator import Client, Run, World, both_loops
from tests.support.tls_world import TlsWorld


@both_loops
@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
def test_a_connection_that_does_not_log_in_in_time_is_closed_and_others_are_not(
    run: Run, with_tls: bool, tmp_path: Path
) -> None:
    async def scenario() -> None:
        world, tls_world = World(authentication_timeout_ms="4000"), TlsWorld(tmp_path)
        tls, dialler = (tls_world.clients(), tls_world.dialler()) if with_tls else (None, None)
        async with world.opened(tls=tls) as served:
            good = await Client.of(served, dialler)
            assert await good.by_plain() == 0
            silent, halfway, dripping = [await Client.of(served, dialler) for _ in range(3)]
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await halfway.handshake()

            async def drip() -> None:
                while True:
                    dripping.writer.write(b"\x00")
                    await asyncio.sleep(0.05)

            drops = asyncio.create_task(drip())
            try:
                for one in (silent, halfway, dripping):
                    assert await one.is_cut_off()
            finally:
                drops.cancel()
            assert await good.is_served()

    run(scenario())


@both_loops
def test_a_failed_login_is_answered_even_if_its_delay_exceeds_the_login_timeout(run: Run) -> None:
    async def scenario() -> None:
        world = World(authentication_timeout_ms="4000", connection_failed_authentication_delay_ms="5000")
        async with world.opened() as served:
            client = await Client.of(served)
            assert await client.by_plain("alice", "wrong") == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await client.is_cut_off()

    run(scenario())


@both_loops
def test_a_client_that_reauthenticates_continues_and_an_expired_session_is_closed(run: Run) -> None:
    async def scenario() -> None:
        async with World(connections_max_reauth_ms="3000").opened() as served:
            client, late, other = [await Client.of(served) for _ in range(3)]
            for one in (client, late, other):
                await one.handshake()
                code, _, lifetime_ms = await one.authenticate(PlainClient("alice", Secret("wonderland")).first())
                assert (code, lifetime_ms) == (0, 3000)
            # A session never continues for another user or by another mechanism.
            assert await other.by_plain("bob", "builder") == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await other.is_cut_off()
            # After the third time, the sessions of the first logins have ended.
            for _ in range(3):
                await asyncio.sleep(RENEWAL_MS / 1000 + 0.1)
                assert await client.by_plain() == 0
                assert await client.is_served()
            late.writer.write(frame(1, b"a"))
            assert await late.is_cut_off()

    run(scenario())
