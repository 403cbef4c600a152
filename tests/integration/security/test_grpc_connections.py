"""Tests that one address cannot take all connections of a gRPC listener, neither with nor without calls."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import pytest

from klamm_server.rpc import grpc_server
from klamm_server.rpc.server import RpcServer
from tests.support.waiting import patience

HOST = "127.0.0.1"
CONNECTIONS_MAX = 100
SHARE = CONNECTIONS_MAX // grpc_server.SHARE_OF_AN_ADDRESS
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has listeners with few connections divide them, too."""
    monkeypatch.setattr(grpc_server, "DIVIDED_MIN", CONNECTIONS_MAX)


@contextlib.contextmanager
def connected(port: int, source: str, first: bytes) -> Iterator[socket.socket]:
    """Yields a connection from an address, on which the client has sent its first bytes."""
    with socket.create_connection((HOST, port), patience(), (source, 0)) as client:
        # gRPC has closed the connection already if it has no place.
        with contextlib.suppress(OSError):
            client.sendall(first)
        yield client


def is_accepted(client: socket.socket) -> bool:
    """Returns True if gRPC has a place for the connection. gRPC sends its settings then."""
    try:
        return bool(client.recv(1))
    except ConnectionResetError:
        return False


@pytest.mark.parametrize("first", [b"", PREFACE, PREFACE + SETTINGS], ids=["silent", "preface", "settings"])
def test_an_address_that_opens_as_many_connections_as_it_can_keeps_no_others_out(small: None, first: bytes) -> None:
    def attack(port: int) -> tuple[int, int]:
        """Returns how many connections of one address are accepted, and how many of 20 other addresses then."""
        with contextlib.ExitStack() as stack:
            greedy = [stack.enter_context(connected(port, "127.0.0.2", first)) for _ in range(CONNECTIONS_MAX + 10)]
            accepted = sum(map(is_accepted, greedy))
            others = [stack.enter_context(connected(port, f"127.0.1.{number}", b"")) for number in range(1, 21)]
            return accepted, sum(map(is_accepted, others))

    async def scenario() -> None:
        rpc = RpcServer(max_message_bytes=1 << 20, max_concurrent_rpcs=100, max_connections=CONNECTIONS_MAX)
        port = await rpc.start(HOST, 0)
        try:
            accepted, others = await asyncio.to_thread(attack, port)
        finally:
            await rpc.stop(0)
        assert accepted <= SHARE
        # An address in ten has its places at the same socket as the greedy one. All twenty do once in 10^20 runs.
        assert others > 0

    asyncio.run(scenario())


@pytest.mark.parametrize("first", [b"", PREFACE], ids=["silent", "preface"])
def test_a_connection_whose_client_does_not_begin_is_closed(monkeypatch: pytest.MonkeyPatch, first: bytes) -> None:
    """A listener with a shorter time closes its connection before another one, to which the client connected earlier.
    Without a time of ours, gRPC closes both after a minute."""

    def wait_for_the_end(client: socket.socket) -> None:
        while client.recv(1024):
            pass

    async def listen() -> tuple[RpcServer, int]:
        rpc = RpcServer(max_message_bytes=1 << 20, max_concurrent_rpcs=100)
        return rpc, await rpc.start(HOST, 0)

    async def scenario() -> None:
        patient, patient_port = await listen()
        monkeypatch.setattr(grpc_server, "PLAIN_HANDSHAKE_MS", 100)
        hasty, hasty_port = await listen()
        try:
            with connected(patient_port, HOST, first) as earlier, connected(hasty_port, HOST, first) as later:
                ends = [asyncio.create_task(asyncio.to_thread(wait_for_the_end, one)) for one in (earlier, later)]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                assert [end.done() for end in ends] == [False, True]
                earlier.shutdown(socket.SHUT_RDWR)
                await asyncio.gather(*ends)
        finally:
            await patient.stop(0)
            await hasty.stop(0)

    asyncio.run(scenario())
