"""Tests that the kernel gives all connections of one address to one of several sockets that share a port."""

from __future__ import annotations

import contextlib
import ipaddress
import random
import selectors
import socket
from collections import Counter
from collections.abc import Iterator

import pytest

from klamm_server.net.source_parts import divide, program
from tests.support.waiting import patience

PARTS = 10
IP_HEADER = 0xFFF00000


def selected(part_count: int, salt: int, source: str) -> int:  # noqa: C901 - a case for each instruction
    """Runs the program as the kernel does, for a packet from that address."""
    address = ipaddress.ip_address(source)
    packet = bytes([address.version << 4]).ljust(12 if address.version == 4 else 8, b"\0") + address.packed
    a = x = position = 0
    steps = program(part_count, salt)
    while True:
        code, if_true, if_false, value = steps[position]
        position += 1
        start = value - IP_HEADER
        match code:
            case 0x20:
                a = int.from_bytes(packet[start : start + 4], "big")
            case 0x30:
                a = packet[start]
            case 0x07:
                x = a
            case 0x74:
                a >>= value
            case 0x24:
                a = a * value & 0xFFFFFFFF
            case 0x94:
                a %= value
            case 0xA4:
                a ^= value
            case 0xAC:
                a ^= x
            case 0x15:
                position += if_true if a == value else if_false
            case 0x05:
                position += value
            case 0x16:
                return a


def test_addresses_are_spread_over_all_parts() -> None:
    sources = [f"10.0.{number // 200}.{number % 200}" for number in range(1_000)]
    counts = Counter(selected(PARTS, 12345, source) for source in sources)
    assert counts.keys() == set(range(PARTS))
    assert max(counts.values()) < 200


def test_a_salt_decides_which_addresses_share_a_part() -> None:
    def shares(salt: int) -> bool:
        return selected(PARTS, salt, "10.0.0.1") == selected(PARTS, salt, "10.0.0.2")

    count = sum(shares(salt) for salt in range(1_000))
    assert 50 < count < 200


def test_a_network_of_ipv6_is_in_one_part_and_other_networks_are_elsewhere() -> None:
    rng = random.Random(7)
    own = {selected(PARTS, 1, f"2001:db8:0:1::{rng.randrange(1 << 16):x}") for _ in range(100)}
    others = {selected(PARTS, 1, f"2001:db8:0:{number:x}::1") for number in range(100)}
    assert (len(own), others) == (1, set(range(PARTS)))


@contextlib.contextmanager
def sharing(family: socket.AddressFamily, host: str) -> Iterator[list[socket.socket]]:
    """Yields sockets that listen at one port."""
    with contextlib.ExitStack() as stack:
        port = 0
        found = []
        for _ in range(PARTS):
            one = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            one.bind((host, port))
            port = one.getsockname()[1]
            one.listen()
            found.append(one)
        yield found


def accepting(listening: list[socket.socket], source: str) -> int:
    """Connects from an address. Returns which socket got the connection."""
    host, port, *_ = listening[0].getsockname()
    with selectors.DefaultSelector() as selector, socket.socket(listening[0].family) as client:
        for number, one in enumerate(listening):
            selector.register(one, selectors.EVENT_READ, number)
        client.bind((source, 0))
        client.connect((host, port))
        ready = selector.select(patience())
        assert len(ready) == 1
        ready[0][0].fileobj.accept()[0].close()
        number = ready[0][0].data
        assert isinstance(number, int)
        return number


@pytest.mark.parametrize(
    ("family", "host", "prefix"),
    [(socket.AF_INET, "127.0.0.1", "127.0.1."), (socket.AF_INET6, "::ffff:127.0.0.1", "::ffff:127.0.1.")],
)
def test_the_kernel_selects_the_socket_as_the_program_says(
    family: socket.AddressFamily, host: str, prefix: str
) -> None:
    with sharing(family, host) as listening:
        divide(listening[0].getsockname()[1], PARTS, 99)
        for number in range(1, 21):
            expected = selected(PARTS, 99, f"127.0.1.{number}")
            assert {accepting(listening, f"{prefix}{number}") for _ in range(3)} == {expected}


def test_other_ports_of_the_process_are_not_divided() -> None:
    with sharing(socket.AF_INET, "127.0.0.1") as divided, sharing(socket.AF_INET, "127.0.0.1") as other:
        divide(divided[0].getsockname()[1], PARTS, 99)
        assert len({accepting(other, "127.0.0.1") for _ in range(50)}) > 1
