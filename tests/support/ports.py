"""Ports that a test gives to servers before they listen. No other process takes them meanwhile, or while a server is
down.

Each process of the tests has blocks of ports of its own. It binds the first port of each block and holds it for as long
as it lives. It gives every other port of the block away once. Another process of the tests finds the first port taken.
"""

from __future__ import annotations

import atexit
import contextlib
import random
import socket
from collections.abc import Iterator, Sequence
from typing import Final

_PORTS: Final = range(10_000, 30_000)
"""The ports of all blocks. They are below the ports that systems give to outgoing connections (Linux: from 32,768 on),
which might otherwise take a port before its server starts, or while the server is down."""
_BLOCK_PORTS: Final = 100
_random = random.Random()  # not seeded by the test run, so that another run tries other blocks first


def free_port() -> int:
    """Returns a port on which no process listens now, and which no other test gets."""
    return free_ports([0])[0]


def free_ports(offsets: Sequence[int]) -> list[int]:
    """Returns ports at these offsets from the first one. The ports between them are taken too."""
    return _OWN.take(offsets)


class PortBlocks:
    """The blocks of this process."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []
        self._left = range(0)

    def take(self, offsets: Sequence[int]) -> list[int]:
        """Returns ports at these offsets from the first one, as `free_ports` does."""
        span = max(offsets) + 1
        assert span < _BLOCK_PORTS, f"offsets={offsets}: expected less than {_BLOCK_PORTS - 1}"
        while True:
            if len(self._left) < span:
                self._left = self._claim()
            ports = [self._left[offset] for offset in offsets]
            self._left = self._left[span:]
            if _are_free(ports):
                return ports

    def _claim(self) -> range:
        blocks = range(_PORTS.start, _PORTS.stop, _BLOCK_PORTS)
        for first in _random.sample(blocks, len(blocks)):
            holder = socket.socket()
            try:
                holder.bind(("127.0.0.1", first))
            except OSError:
                holder.close()
                continue
            self._held.append(holder)
            atexit.register(holder.close)  # so that Python does not warn of an open socket
            return range(first + 1, first + _BLOCK_PORTS)
        raise AssertionError(f"no block of {_PORTS} is free")


def _are_free(ports: Sequence[int]) -> bool:
    with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
        for port in ports:
            probe = probes.enter_context(contextlib.closing(socket.socket()))
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
        return True
    return False


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """Yields a port at which connections are refused for as long as the block lasts."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        yield port


_OWN: Final = PortBlocks()
