"""The network of a world: hosts, links between them, and connections.

A connection is what TCP gives to its users: messages arrive in order, both ways, until the connection breaks. A cut
link loses nothing of a connection that outlives the cut: what was sent waits, as it does when TCP sends it again.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol

from tests.world.kernel import SECOND_US, Range, World
from tests.world.process import Host, SimProcess

CONTROL_BYTES = 64
"""The size of a message that only opens or ends something."""
BYTES_PER_US = 200
FIRST_PORT = 40_000
REFUSED = "Connection refused"
TIMED_OUT = "Connection timed out"
RESET = "Connection reset by peer"
CLOSED = "Socket closed"

Link = tuple[str, str]
"""The names of two hosts: from the first to the second one."""


class Acceptor(Protocol):
    """Listens at a port of a process."""

    process: SimProcess

    def accept(self, connection: Connection) -> None:
        """Uses side 1 of a new connection. The process runs."""


class EndUser(Protocol):
    """Uses one end of a connection."""

    def on_broken(self, why: str) -> None:
        """The connection has ended. The process runs."""


class Network:
    """All hosts and the links between them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.hosts: dict[str, Host] = {}
        self.latency_us: Range = world.timings.latency_us
        self.connections: dict[Connection, None] = {}
        self._acceptors: dict[tuple[str, int], Acceptor] = {}
        self._cuts: dict[Link, int] = {}
        self._next_port = FIRST_PORT

    def host(self, name: str) -> Host:
        """Returns the host of that name, and makes it at the first call."""
        host = self.hosts.get(name)
        if host is None:
            number = len(self.hosts) + 1
            host = self.hosts[name] = Host(self.world, name, f"10.0.{number // 256}.{number % 256}")
        return host

    def next_port(self) -> int:
        self._next_port += 1
        return self._next_port

    # Listeners

    def listen(self, port: int, acceptor: Acceptor) -> int:
        """Listens at a port of the acceptor's host until its process dies, or until `leave`. 0 selects a port. Raises
        OSError if the port is in use."""
        process, port = acceptor.process, port or self.next_port()
        key = (process.host.name, port)
        if key in self._acceptors:
            raise OSError(f"port {port} of {process.host.name} is in use")
        self._acceptors[key] = acceptor
        process.at_death.append(lambda: self.leave(port, acceptor))
        return port

    def leave(self, port: int, acceptor: Acceptor) -> None:
        key = (acceptor.process.host.name, port)
        if self._acceptors.get(key) is acceptor:
            del self._acceptors[key]

    # Links

    def is_cut(self, source: Host, target: Host) -> bool:
        return bool(self._cuts) and (source.name, target.name) in self._cuts

    def cut(self, links: Collection[Link]) -> None:
        """Cuts links. A link that is cut twice must be healed twice."""
        for link in links:
            self._cuts[link] = self._cuts.get(link, 0) + 1
        self.world.note("cut", *sorted(links))
        for connection in list(self.connections):
            connection.watch_keepalive()

    def heal(self, links: Iterable[Link]) -> None:
        for link in links:
            self._cuts[link] -= 1
            if not self._cuts[link]:
                del self._cuts[link]
        self.world.note("heal")
        for connection in list(self.connections):
            connection.on_heal()

    def links_of(self, name: str) -> list[Link]:
        """Returns all links to and from a host."""
        others = [other for other in self.hosts if other != name]
        return [*((name, other) for other in others), *((other, name) for other in others)]

    def delay_us(self, size_bytes: int) -> int:
        return self.world.draw(self.latency_us) + size_bytes // BYTES_PER_US

    # Connections

    def connect(
        self, process: SimProcess, host: str, port: int, timeout_us: int, on_done: Callable[[Connection | str], object]
    ) -> None:
        """Calls `on_done` in the process, with a connection or the reason why there is none."""
        attempt = _Attempt(self, process, host, port, on_done)
        self.world.after(self.delay_us(CONTROL_BYTES), attempt.arrive)
        self.world.after(timeout_us, attempt.end, TIMED_OUT)

    def acceptor(self, host: str, port: int) -> Acceptor | None:
        return self._acceptors.get((host, port))


class _Attempt:
    """An attempt to connect."""

    RETRY_US = SECOND_US

    def __init__(
        self, network: Network, process: SimProcess, host: str, port: int, on_done: Callable[[Connection | str], object]
    ) -> None:
        self._network = network
        self._process = process
        self._host = network.host(host)
        self._port = port
        self._on_done = on_done
        self._is_over = False

    def arrive(self) -> None:
        """The first message arrives, unless the link is cut. Then TCP sends it again."""
        network, own = self._network, self._process.host
        if self._is_over or self._process.is_dead:
            return
        if network.is_cut(own, self._host) or network.is_cut(self._host, own):
            network.world.after(self.RETRY_US, self.arrive)
            return
        acceptor = network.acceptor(self._host.name, self._port)
        if acceptor is None:
            network.world.after(network.delay_us(CONTROL_BYTES), self.end, REFUSED)
            return
        connection = Connection(network, self._process, acceptor.process)
        network.world.after(network.delay_us(CONTROL_BYTES), self.end, connection)
        # The kernel accepts for a process that is paused.
        acceptor.process.when_running(_accept, acceptor, connection)

    def end(self, result: Connection | str) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._process.when_running(_in_process, self._process, self._tell, result)

    def _tell(self, result: Connection | str) -> None:
        """Tells the process the result. The connection may have broken while the process was paused."""
        self._on_done(RESET if isinstance(result, Connection) and not result.is_open(0) else result)


def _accept(acceptor: Acceptor, connection: Connection) -> None:
    if connection.is_open(1):
        _in_process(acceptor.process, acceptor.accept, connection)


def _in_process(process: SimProcess, do: Callable[..., object], *arguments: Any) -> None:
    """Runs code of the network's users, which only plans callbacks of the process."""
    with process.running(process.loop):
        do(*arguments)


class Connection:
    """A connection. Side 0 dialled, side 1 accepted."""

    def __init__(self, network: Network, client: SimProcess, server: SimProcess) -> None:
        self.port = network.next_port()
        """The client's port."""
        self.users: list[EndUser | None] = [None, None]
        self.keepalive_us: tuple[int, int] | None = None
        """The client's silence before a ping, and how long the client waits for the answer."""
        self.needs_keepalive: Callable[[], bool] = lambda: True
        self._network = network
        self._world = network.world
        self._ends = (client, server)
        self._is_open = [True, True]
        self._last_us = [0, 0]
        self._held_back: tuple[deque[_Message], deque[_Message]] = (deque(), deque())
        network.connections[self] = None
        client.connections[self] = server.connections[self] = None

    def __hash__(self) -> int:
        return self.port

    def is_open(self, side: int) -> bool:
        return self._is_open[side]

    def peer_host(self, side: int) -> Host:
        """Returns the host at the other end."""
        return self._ends[1 - side].host

    def note(self, *parts: object) -> None:
        """Notes a message that arrived, with the checksums of its bytes."""
        shown = (f"{len(part)}:{zlib.crc32(part):08x}" if isinstance(part, bytes) else part for part in parts)
        self._world.note(self.port, *shown)

    # Messages

    def send(self, side: int, size_bytes: int, do: Callable[..., object], *arguments: Any) -> None:
        """Calls `do` in the process at the other end, after all earlier messages."""
        if not self._is_open[side] or self._ends[side].is_dead:
            return
        message = (size_bytes, do, arguments)
        if self._held_back[side] or self._is_cut(side):
            self._held_back[side].append(message)
        else:
            self._launch(side, message)

    def _launch(self, side: int, message: _Message) -> None:
        arrival_us = max(self._last_us[side] + 1, self._world.now_us + self._network.delay_us(message[0]))
        self._last_us[side] = arrival_us
        self._world.at(arrival_us, self._arrive, side, message)

    def _arrive(self, side: int, message: _Message) -> None:
        receiver = self._ends[1 - side]
        if not self._is_open[1 - side] or receiver.is_dead:
            return
        if self._held_back[side] or self._is_cut(side):
            self._held_back[side].append(message)
            return
        _, do, arguments = message
        receiver.when_running(_in_process, receiver, do, *arguments)

    def _is_cut(self, side: int) -> bool:
        """Returns whether the link from that side to the other one is cut."""
        return self._network.is_cut(self._ends[side].host, self._ends[1 - side].host)

    def on_heal(self) -> None:
        for side in (0, 1):
            if self._is_cut(side):
                continue
            held_back = list(self._held_back[side])
            self._held_back[side].clear()
            for message in held_back:
                self._launch(side, message)
            if self._is_open[side] and not self._is_open[1 - side] and not self._is_cut(1 - side):
                # The other side has closed its end, so its kernel answers with a reset.
                self._world.after(self._network.delay_us(CONTROL_BYTES), self._on_broken, side, RESET)

    # The end

    def close(self, side: int) -> None:
        """Closes one end. What it sent before arrives first."""
        if not self._is_open[side]:
            return
        self.send(side, CONTROL_BYTES, self._on_broken, 1 - side, CLOSED)
        self._is_open[side] = False
        self._forget()

    def reset(self) -> None:
        """Breaks the connection at both ends, as a router does that drops it. Each end gets a reset after a delay."""
        for side in (0, 1):
            self._world.after(self._network.delay_us(CONTROL_BYTES), self._on_broken, side, RESET)

    def on_process_died(self, process: SimProcess) -> None:
        """Closes the end of a process that died. The other end gets a reset, unless the link is cut."""
        side = 0 if self._ends[0] is process else 1
        self._is_open[side] = False
        if not self._is_cut(side):
            self._world.after(self._network.delay_us(CONTROL_BYTES), self._on_broken, 1 - side, RESET)
        self._forget()

    def _on_broken(self, side: int, why: str) -> None:
        process = self._ends[side]
        if not self._is_open[side] or process.is_dead:
            return
        self._is_open[side] = False
        if self._is_open[1 - side] and not self._is_cut(side):
            self._world.after(self._network.delay_us(CONTROL_BYTES), self._on_broken, 1 - side, why)
        self._forget()
        user = self.users[side]
        if user is not None:
            process.when_running(_in_process, process, user.on_broken, why)

    def _forget(self) -> None:
        for side in (0, 1):
            if not self._is_open[side]:
                self._ends[side].connections.pop(self, None)
        if not any(self._is_open):
            self._network.connections.pop(self, None)

    # Keepalive

    def watch_keepalive(self) -> None:
        """Plans the moment when the client finds that the other end is silent. Call this when the link was cut or the
        server was paused."""
        if self.keepalive_us is None or not self._is_open[0]:
            return
        interval_us, timeout_us = self.keepalive_us
        self._world.after(self._world.draw((0, interval_us)) + timeout_us, self._check_keepalive)

    def _check_keepalive(self) -> None:
        if not self._is_open[0] or self._ends[0].is_dead:
            return
        if not (self._is_cut(0) or self._is_cut(1) or self._ends[1].is_paused):
            return
        if self.needs_keepalive():
            self._on_broken(0, "keepalive watchdog timeout")
        else:
            self.watch_keepalive()


_Message = tuple[int, Callable[..., object], tuple[Any, ...]]
"""Its size in bytes, and what it does at the other end."""
