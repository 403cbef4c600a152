"""A Kafka listener with TLS bounds the time of a handshake, and closes connections on which none begins."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests.support.kafka_listener import answer_to, frame
from tests.support.tls_listener import Run, both_loops, opened, refused
from tests.support.tls_world import TlsWorld
from tests.support.waiting import until


@pytest.fixture
def world(tmp_path: Path) -> TlsWorld:
    return TlsWorld(tmp_path)


@both_loops
def test_a_handshake_that_does_not_end_is_cut_off(world: TlsWorld, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with opened(world.clients(ssl_handshake_timeout_ms="50"), connections_max=1) as served:
            reader, writer = await served.connect()
            writer.write(b"\x16\x03\x01\x02")
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            await until(lambda: not served.listener.handshakes_under_way)
            reader, writer = await served.connect(world.dialler())
            writer.write(frame(1, b"a"))
            assert await answer_to(reader) == (1, b"a")
            writer.close()

    run(scenario())
    assert "a TLS handshake of 127.0.0.1 failed" in caplog.text
    assert "the handshake took longer than 50 ms" in caplog.text


@both_loops
def test_silent_connections_of_an_address_block_others_only_until_their_handshake_timeout(
    world: TlsWorld, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        tls = world.clients(handshakes_max=20, ssl_handshake_timeout_ms="300")
        async with opened(tls) as served:
            silent = [await served.connect() for _ in range(10)]
            # An address may have a tenth, which the first two connections take.
            ended = [asyncio.create_task(reader.read()) for reader, _ in silent]
            await until(lambda: sum(one.done() for one in ended) == 8)
            assert len(tls.limit) == 2
            assert await refused(served, world.dialler())
            await until(lambda: len(tls.limit) == 0)
            assert not await refused(served, world.dialler())
            await asyncio.gather(*ended, return_exceptions=True)
            for _, writer in silent:
                writer.close()
        assert len(tls.limit) == 0

    run(scenario())
    told = [record.getMessage() for record in caplog.records if "a connection" in record.getMessage()]
    assert len(told) == 1
    assert (
        "a tenth of max.unauthenticated.connections=20 connections from the client's address are in their handshake"
        " or login" in told[0]
    )
