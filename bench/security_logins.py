"""How fast clients get in, by TLS and by SCRAM over TLS, and what a client that is in already notices of it.

Plain blocking sockets in threads of one process, which do not verify the server's certificate and have salted their
password before: so the server is what they wait for, as far as one machine for both allows. A handshake counts when
ApiVersions was answered behind it, for a client has finished it before the server has.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import pathlib
import socket
import ssl
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing.pool import ThreadPool
from typing import Any, Final

from bench.connections import acknowledged_ms
from bench.peer_figures import Figures, in_turns, rows
from bench.peer_servers import HOST
from bench.secured_peers import MECHANISM, STARTS, TOPICS, USER, SecuredPeer, client_context
from klamm.secret import Secret
from klamm.security.sasl.scram_keys import ScramMechanism, client_proof, salted_password
from klamm.security.sasl.scram_messages import ClientFirst, client_final_without_proof, parse_server_first, with_proof

THREADS: Final = 8
RECONNECTS: Final = 1_000
SECONDS: Final = 8.0
TIMEOUT_S: Final = 120
API_VERSIONS: Final = struct.pack(">hhih", 18, 0, 1, -1)
SASL_HANDSHAKE: Final = struct.pack(">hhihh", 17, 1, 1, -1, len(MECHANISM)) + MECHANISM.encode()
NEIGHBOUR: Final = f"{TOPICS}neighbour"

_salted = functools.cache(salted_password)


class Entrance:
    """A listener, and what one says there to get in."""

    def __init__(self, port: int, password: str | None) -> None:
        """Makes a client. Without a password, it does not log in."""
        self._port = port
        self._password = None if password is None else Secret(password)
        self._context = client_context()

    def enter(self) -> ssl.SSLSocket:
        """A connection that is in."""
        plain = socket.create_connection((HOST, self._port), TIMEOUT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made = self._context.wrap_socket(plain)
        if self._password is None:
            _ask(made, API_VERSIONS)
        else:
            self._log_in(made, self._password)
        return made

    def _log_in(self, made: ssl.SSLSocket, password: Secret) -> None:
        assert _ask(made, SASL_HANDSHAKE)[:2] == b"\0\0", "the mechanism is refused"
        first = ClientFirst(name=USER, nonce=str(time.monotonic_ns()))
        challenge = _authenticate(made, first.encode())
        server_first = parse_server_first(challenge)
        salted = _salted(ScramMechanism.SHA_512, password, server_first.salt, server_first.iterations)
        without_proof = client_final_without_proof(first.gs2_header, server_first.nonce)
        proved = b",".join((first.bare, challenge, without_proof))
        _authenticate(made, with_proof(without_proof, client_proof(ScramMechanism.SHA_512, salted, proved)))


def _authenticate(made: ssl.SSLSocket, message: bytes) -> bytes:
    answer = _ask(made, struct.pack(">hhihi", 36, 1, 2, -1, len(message)) + message)
    assert answer[:2] == b"\0\0", f"the login failed: {answer!r}"
    # No text of an error, and the server's message by its length.
    (size,) = struct.unpack_from(">i", answer, 4)
    return answer[8 : 8 + size]


def _ask(made: ssl.SSLSocket, request: bytes) -> bytes:
    """The answer behind its correlation id."""
    made.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _take(made, 4))
    return _take(made, size)[4:]


def _take(made: ssl.SSLSocket, size: int) -> bytes:
    taken = b""
    while len(taken) < size:
        more = made.recv(size - len(taken))
        assert more, "the connection was closed"
        taken += more
    return taken


def enter_again_and_again(port: int, password: str | None, seconds: float) -> float:
    """Returns the number of logins per second, over all threads."""
    entrance = Entrance(port, password)
    entrance.enter().close()
    started_s = time.perf_counter()

    def work(_: int) -> int:
        count = 0
        while time.perf_counter() < started_s + seconds:
            entrance.enter().close()
            count += 1
        return count

    total = sum(_in_threads(work))
    return total / (time.perf_counter() - started_s)


def reconnect(port: int, password: str, count: int) -> float:
    """Seconds until that many connections, which ended together, are in again."""
    entrance = Entrance(port, password)

    def work(number: int) -> list[ssl.SSLSocket]:
        return [entrance.enter() for _ in range(number, count, THREADS)]

    for made in [each for thread in _in_threads(work) for each in thread]:
        made.close()
    started_s = time.perf_counter()
    again = [each for thread in _in_threads(work) for each in thread]
    took_s = time.perf_counter() - started_s
    assert len(again) == count, len(again)
    return took_s


def rest(seconds: float) -> float:
    """No load."""
    time.sleep(seconds)
    return seconds


def _in_threads(work: Callable[[int], Any]) -> list[Any]:
    """Returns the results of `work` for the number of each thread."""
    with ThreadPool(THREADS) as pool:
        return pool.map(work, range(THREADS), chunksize=1)


def beside_a_neighbour(
    secured: SecuredPeer, seconds: float, load: Callable[..., float], *arguments: Any
) -> list[float]:
    """Returns what the load returns, and the 99th percentile of another client's single records at the same time, in
    milliseconds."""
    security = secured.client("SASL_SSL")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        neighbour = pool.apply_async(acknowledged_ms, (secured.bootstrap("SASL_SSL"), seconds, NEIGHBOUR, security))
        found = pool.apply(load, arguments)
        return [found, statistics.quantiles(neighbour.get(TIMEOUT_S), n=100)[98]]


def measure(secured: SecuredPeer, size: float) -> Figures:
    seconds, reconnects = SECONDS * size, int(RECONNECTS * size)
    figures: Figures = {}
    _, figures["another's produce p99 alone, ms"] = beside_a_neighbour(secured, seconds, rest, seconds)
    for what, listener, password in (("handshakes", "SSL", None), ("logins", "SASL_SSL", secured.password)):
        cpu_s = secured.peer.cpu_s()
        rate, p99_ms = beside_a_neighbour(
            secured, seconds, enter_again_and_again, secured.ports[listener], password, seconds
        )
        figures[f"{what}, per s"] = rate
        figures[f"server CPU by {what}, ms each"] = (secured.peer.cpu_s() - cpu_s) * 1000 / (rate * seconds)
        figures[f"another's produce p99 beside {what}, ms"] = p99_ms
    took_s, p99_ms = beside_a_neighbour(
        secured, seconds, reconnect, secured.ports["SASL_SSL"], secured.password, reconnects
    )
    figures[f"{reconnects:,} clients log in again, s"] = took_s
    figures["another's produce p99 beside these, ms"] = p99_ms
    return figures


def measure_logins(options: argparse.Namespace) -> Iterator[str]:
    """The first round warms up."""
    with (
        tempfile.TemporaryDirectory(prefix="klamm-security-", ignore_cleanup_errors=True) as scratch,
        ExitStack() as running,
    ):
        ours, theirs = (
            running.enter_context(start(pathlib.Path(scratch, name), has_authorizer=False))
            for name, start in STARTS.items()
        )
        work = functools.partial(measure, size=options.size)
        in_turns((ours, theirs), 1, work)
        for row in rows(in_turns((ours, theirs), options.rounds, work)):
            yield row.line()
