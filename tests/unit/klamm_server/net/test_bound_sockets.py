"""Tests that sockets are bound to all addresses of a host, or to none."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Collection, Iterator
from typing import Any

import pytest
from grpc.aio import _server as grpc_aio

from klamm.errors import KlammError
from klamm_server.net.bound_sockets import bound_sockets
from klamm_server.rpc.server import RpcServer
from tests.support.kafka_listener import ServedListener, echo

BOTH = [(socket.AF_INET6, ("::1", 0, 0, 0)), (socket.AF_INET, ("127.0.0.1", 0))]


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> str:
    """Returns a host name for ::1 and 127.0.0.1, as localhost is on most machines."""

    real = socket.getaddrinfo

    def getaddrinfo(host: str, *options: Any, **named: Any) -> list[Any]:
        if host != "both":
            return real(host, *options, **named)
        return [(family, socket.SOCK_STREAM, 6, "", address) for family, address in [*BOTH, BOTH[-1]]]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return "both"


@contextlib.contextmanager
def taken(family: socket.AddressFamily, host: str) -> Iterator[int]:
    """Yields a port that is in use."""
    with socket.socket(family) as other:
        if family is socket.AF_INET6:
            other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        other.bind((host, 0))
        other.listen()
        yield other.getsockname()[1]


def addresses(host: str, port: int = 0) -> list[tuple[str, int]]:
    held = bound_sockets(host, port)
    names = [one.getsockname()[:2] for one in held]
    for one in held:
        one.close()
    return names


def test_a_host_name_is_bound_at_all_of_its_addresses_with_one_port(both: str) -> None:
    (first, port), (second, other_port) = addresses(both)
    assert (first, second, port > 0) == ("::1", "127.0.0.1", True)
    assert port == other_port
    assert addresses(both, port) == [("::1", port), ("127.0.0.1", port)]


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("", {"0.0.0.0", "::"}),
        ("[::]", {"0.0.0.0", "::"}),
        ("0.0.0.0", {"0.0.0.0"}),
        ("[::1]", {"::1"}),
        ("127.0.0.1", {"127.0.0.1"}),
    ],
)
def test_an_address_is_bound_alone_and_an_empty_host_at_every_interface(host: str, found: set[str]) -> None:
    names = addresses(host)
    assert {name for name, _ in names} == found
    assert len({port for _, port in names}) == 1


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1")])
def test_binding_fails_if_one_address_of_a_host_name_is_in_use(
    both: str, family: socket.AddressFamily, host: str
) -> None:
    with taken(family, host) as port:
        shown = f"[{host}]" if family is socket.AF_INET6 else host
        with pytest.raises(KlammError) as refused:
            bound_sockets(both, port)
    assert str(refused.value) == f"cannot listen on both:{port}: Address already in use ({shown}:{port})"
    assert len(addresses(both, port)) == 2, "nothing is held"


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")])
def test_binding_every_interface_fails_if_one_family_is_in_use(family: socket.AddressFamily, host: str) -> None:
    with taken(family, host) as port, pytest.raises(KlammError, match="Address already in use"):
        bound_sockets("", port)


def test_a_chosen_port_is_free_at_all_addresses_of_the_host(both: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first port that the system offers for ::1 is in use at 127.0.0.1."""
    with taken(socket.AF_INET, "127.0.0.1") as port:
        offered = [port]
        bind = socket.socket.bind

        def offering(self: socket.socket, address: tuple[object, ...]) -> None:
            host, wanted, *scope = address
            bind(self, (host, offered.pop() if offered and not wanted else wanted, *scope))

        monkeypatch.setattr(socket.socket, "bind", offering)
        names = addresses(both)
    assert not offered
    assert len({port, *(found for _, found in names)}) == 2, names


def test_a_machine_without_ipv6_listens_at_its_ipv4_addresses(both: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bind = socket.socket.bind

    def without_ipv6(self: socket.socket, address: tuple[object, ...]) -> None:
        if self.family is socket.AF_INET6:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        bind(self, address)

    monkeypatch.setattr(socket.socket, "bind", without_ipv6)
    assert [host for host, _ in addresses(both)] == ["127.0.0.1"]
    assert [host for host, _ in addresses("")] == ["0.0.0.0"]
    with pytest.raises(KlammError, match=r"cannot listen on \[::1\]:0: Cannot assign requested address"):
        bound_sockets("[::1]", 0)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(KlammError, match=r"^cannot listen on 203\.0\.113\.5:0: Cannot assign requested address"):
        bound_sockets("203.0.113.5", 0)


async def serve_grpc(host: str, port: int, names: Collection[str] = ("127.0.0.1", "::1")) -> None:
    rpc = RpcServer(max_message_bytes=1 << 20, max_concurrent_rpcs=10)
    try:
        found = await rpc.start(host, port)
        for name in names:
            _, writer = await asyncio.open_connection(name, found)
            writer.close()
    finally:
        await rpc.stop(0)


async def serve_kafka(host: str, port: int) -> None:
    listener = ServedListener(echo).listener
    try:
        found = await listener.bind(host, port)
        await listener.open()
        for name in ("127.0.0.1", "::1"):
            _, writer = await asyncio.open_connection(name, found)
            writer.close()
    finally:
        await listener.close()


@pytest.mark.parametrize("serve", [serve_grpc, serve_kafka])
def test_a_server_does_not_start_if_one_interface_is_in_use(serve, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(serve("", 0))
    with taken(socket.AF_INET6, "::") as port, pytest.raises(KlammError, match=f"^cannot listen on :{port}: "):
        asyncio.run(serve("", port))


@pytest.mark.parametrize("serve", [serve_grpc, serve_kafka])
def test_a_server_does_not_start_if_one_address_of_its_host_name_is_in_use(serve, both: str) -> None:
    with taken(socket.AF_INET6, "::1") as port, pytest.raises(KlammError, match=f"^cannot listen on both:{port}: "):
        asyncio.run(serve(both, port))


@pytest.mark.parametrize("host", ["127.0.0.1", "", "both"])
def test_a_second_server_cannot_share_the_port_of_a_grpc_listener(host: str, both: str) -> None:
    """gRPC's own sockets share a port, which must not let in another server."""

    async def scenario() -> None:
        first = RpcServer(max_message_bytes=1 << 20, max_concurrent_rpcs=10)
        port = await first.start(host, 0)
        try:
            with pytest.raises(KlammError, match="Address already in use"):
                await serve_grpc(host, port)
        finally:
            await first.stop(0)

    asyncio.run(scenario())


@pytest.mark.parametrize("host", ["127.0.0.1", "", "both"])
def test_no_other_process_can_bind_the_port_before_grpc_listens(
    host: str, both: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[int] = []
    add_insecure_port = grpc_aio.Server.add_insecure_port

    def after_a_rival(self: grpc_aio.Server, address: str) -> int:
        with socket.socket() as rival, pytest.raises(OSError, match="Address already in use") as taken:
            rival.bind(("127.0.0.1", int(address.rpartition(":")[2])))
        refused.append(taken.value.errno)
        return add_insecure_port(self, address)

    monkeypatch.setattr(grpc_aio.Server, "add_insecure_port", after_a_rival)
    asyncio.run(serve_grpc(host, 0, ["127.0.0.1"]))
    assert set(refused) == {errno.EADDRINUSE}
