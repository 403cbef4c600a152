"""Limits the connections that have not finished their handshake or login.

Each of them holds memory, and may be silent until its time limit. So there is a limit for the whole broker, and a tenth
of it for each address, or for each /64 network of IPv6. One machine alone cannot lock others out. Pure.
"""

from __future__ import annotations

from typing import Final

from klamm_server.security.acls.hosts import network_of

SHARE_OF_AN_ADDRESS: Final = 10
_SETTING: Final = "max.unauthenticated.connections"


class HandshakeLimit:
    """The places for unfinished handshakes, shared by the listeners of a broker."""

    def __init__(self, connections_max: int) -> None:
        self._connections_max = connections_max
        self._of_an_address_max = max(1, connections_max // SHARE_OF_AN_ADDRESS)
        self._by_address: dict[str, int] = {}
        self._taken = 0

    def __len__(self) -> int:
        """Returns the number of connections that have not finished their handshake or login."""
        return self._taken

    def take(self, address: str) -> str:
        """Takes a place for a connection from the address. Returns the reached limit if there is none, otherwise ""."""
        if self._taken >= self._connections_max:
            return f"{_SETTING}={self._connections_max} connections are in their handshake or login"
        address = network_of(address)
        its_own = self._by_address.get(address, 0)
        if its_own >= self._of_an_address_max:
            return (
                f"a tenth of {_SETTING}={self._connections_max} connections from the client's address are in their"
                " handshake or login"
            )
        self._by_address[address] = its_own + 1
        self._taken += 1
        return ""

    def give_back(self, address: str) -> None:
        """Returns the place of a connection that has finished or was closed."""
        address = network_of(address)
        self._taken -= 1
        its_own = self._by_address[address] - 1
        if its_own:
            self._by_address[address] = its_own
        else:
            del self._by_address[address]
