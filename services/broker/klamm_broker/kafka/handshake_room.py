"""How many connections may be on their way in at once: connected, and not through with their handshake.

Each holds memory, and may be silent until its time is up. So there is a bound for all of a broker, and of that a tenth
for one address: one machine alone keeps nobody else out. Pure.
"""

from __future__ import annotations

from typing import Final

SHARE_OF_AN_ADDRESS: Final = 10
_SETTING: Final = "max.unauthenticated.connections"


class HandshakeRoom:
    """Shared by the listeners of a broker."""

    def __init__(self, connections_max: int) -> None:
        self._connections_max = connections_max
        self._of_an_address_max = max(1, connections_max // SHARE_OF_AN_ADDRESS)
        self._by_address: dict[str, int] = {}
        self._taken = 0

    def __len__(self) -> int:
        """The number of connections on their way in."""
        return self._taken

    def take(self, address: str) -> str:
        """Takes room for one from that address; if there is none, says which bound has been reached."""
        if self._taken >= self._connections_max:
            return f"{_SETTING}={self._connections_max} connections are in their handshake or login"
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
        """One is in, or has gone."""
        self._taken -= 1
        its_own = self._by_address[address] - 1
        if its_own:
            self._by_address[address] = its_own
        else:
            del self._by_address[address]
