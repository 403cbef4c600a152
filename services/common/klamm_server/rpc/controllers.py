"""The addresses of the controllers that a broker or coordinator knows: the cluster's newest ones, and the configured.

The quorum's voters may all change while a server runs (KIP-853), so the active controller names them with every
heartbeat. The server tries the configured addresses after those. A starting server has only the configured addresses.
They also help if the server was away so long that all voters it knew are gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.controller_pb2 import ControllerListeners
from klamm_server.net.listeners import Listener, between_servers, decode, plain_listeners

Address = tuple[str, int]


class Controllers:
    """The controllers' addresses, shared by all code that calls controllers. `configured` has at least one (host,
    port). `own` is the listener of other servers that this server uses. Without it, the addresses are those that the
    controllers use among themselves."""

    def __init__(self, configured: Sequence[Address], own: Listener | None = None) -> None:
        assert configured, "no controllers are configured"
        self._own = own
        self._configured = tuple(configured)
        self._current: tuple[Address, ...] = ()
        self._listeners: dict[Address, tuple[Listener, ...]] = {}

    @property
    def current(self) -> tuple[Address, ...]:
        """Returns the controllers of the quorum, or the configured ones until these are known."""
        return self._current or self._configured

    @property
    def to_try(self) -> tuple[Address, ...]:
        """Returns the controllers to try in this order, each once."""
        return tuple(dict.fromkeys([*self._current, *self._configured]))

    def learn(self, endpoints: Iterable[Endpoint], listeners: Iterable[ControllerListeners] = ()) -> None:
        """Notes the controllers' addresses and listeners from a controller's answer. An empty answer changes
        nothing."""
        told = {
            (listener.controller.host, listener.controller.port): decode(listener.listeners) for listener in listeners
        }
        current = [(endpoint.host, endpoint.port) for endpoint in endpoints]
        self._current = tuple(self._dialled(address, told.get(address, ())) for address in current) or self._current
        self._listeners = {self._dialled(address, told[address]): told[address] for address in told} or self._listeners

    def listeners(self, address: Address) -> tuple[Listener, ...]:
        """Returns the listeners that clients of that controller dial. If they are unknown, returns the address that
        servers dial."""
        return self._listeners.get(address) or plain_listeners(*address)

    def active_first(self, active: str) -> list[tuple[Listener, ...]]:
        """Returns the listeners of each controller that clients dial. Those of the controller at `active`, host:port,
        come first."""
        addresses = sorted(self.current, key=lambda address: "{}:{}".format(*address) != active)
        return [self.listeners(address) for address in addresses]

    def following(self, address: Address) -> Address:
        """Returns the controller to try after the one at `address` has failed."""
        to_try = self.to_try
        position = to_try.index(address) + 1 if address in to_try else 0
        return to_try[position % len(to_try)]

    def _dialled(self, address: Address, listeners: Sequence[Listener]) -> Address:
        """Returns the address that this server dials to reach a controller. Other controllers may dial another one."""
        found = None if self._own is None else between_servers(listeners, self._own)
        return address if found is None else found.address
