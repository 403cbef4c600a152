"""A coverage-guided fuzzer of a Kafka listener where clients log in: any bytes of somebody who has not.

Run: make fuzz, or python tests/fuzz/kafka_login.py [--inputs 10000000] [--corpus DIRECTORY]

It stops at the first input that breaks something, that is served as if its client had logged in, or that keeps one of
the places for those who have not. The input is left in the working directory, to be run again with `--again FILE`. Its
first byte says how the rest is packed (`unpack`).
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import pathlib
import random
import secrets
import struct
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import atheris

with atheris.instrument_imports(include=["klamm_broker", "klamm.security.sasl", "klamm_server.security"]):
    from klamm_broker.kafka.api import ApiKey
    from klamm_broker.kafka.login.sasl_clients import SaslClients
    from klamm_broker.kafka.net.connection import KafkaConnection
    from klamm_broker.kafka.net.listener import ConnectionLimit, KafkaListener
    from klamm_broker.kafka.requests import Request
    from klamm_broker.kafka.served_apis import SPOKEN

from klamm.acls import ANONYMOUS
from klamm.secret import Secret
from klamm.security.sasl.scram_keys import ScramMechanism, credential_of, salted_password
from klamm_broker.io.request_memory import RequestMemory
from klamm_broker.kafka.net.handshake_limit import HandshakeLimit
from klamm_server.config.sasl_settings import ListenerSaslSettings
from klamm_server.metadata.image import MetadataImage
from klamm_server.runtime.clock import SystemClock
from klamm_server.security.logins.logins import Logins
from tests.fuzz.fuzzed_connection import Target, framed

# The last one is not enabled.
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
FIRST = {
    "SCRAM-SHA-256": b"n,,n=alice,r=client",
    "SCRAM-SHA-512": b"n,,n=alice,r=client",
    "PLAIN": b"\0alice\0password",
    "OAUTHBEARER": b"n,,\x01auth=Bearer a.b.c\x01\x01",
}
_NEXT = b"\xff"
ITERATIONS = 1
"""A check of a password is to be quick."""
PLACES = 10


def request(api_key: int, version: int, body: bytes, *, flexible: bool) -> bytes:
    header = struct.pack(">hhih", api_key, version, 7, 4) + b"fuzz"
    return framed(header + (b"\0" if flexible else b"") + body)


def handshake(mechanism: bytes) -> bytes:
    return request(ApiKey.SASL_HANDSHAKE, 1, struct.pack(">h", len(mechanism)) + mechanism, flexible=False)


def authenticate(version: int, data: bytes) -> bytes:
    if version < SPOKEN[ApiKey.SASL_AUTHENTICATE].flexible:
        return request(ApiKey.SASL_AUTHENTICATE, version, struct.pack(">i", len(data)) + data, flexible=False)
    size = len(data) + 1
    varint = bytes([size & 0x7F | 0x80, size >> 7 & 0x7F])
    return request(ApiKey.SASL_AUTHENTICATE, version, varint + data + b"\0", flexible=True)


def unpack(data: bytes) -> Iterator[bytes]:
    """What the client sends, piece by piece: a login's messages, requests of any API, or bytes as they are."""
    kind, rest = data[:1], data[1:]
    if kind == b"l" and rest:
        yield handshake(MECHANISMS[rest[0] % 4].encode())
        for message in rest[1:].split(_NEXT):
            yield authenticate(rest[0] // 4 % 3, message)
    elif kind == b"f":
        while len(rest) > 3:
            size = rest[2]
            yield request(rest[0], rest[1], rest[3 : 3 + size], flexible=bool(rest[0] & 128))
            rest = rest[3 + size :]
    else:
        step = 1 + (data[0] if data else 0) ** 2
        yield from (data[start : start + step] for start in range(1, len(data), step))


def seeds() -> Iterator[bytes]:
    """The beginnings of logins by each mechanism, and requests that a client may not send before its login."""
    for number, mechanism in enumerate(MECHANISMS):
        for version in range(3):
            yield b"l" + bytes([number + 4 * version]) + FIRST[mechanism]
            yield b"l" + bytes([number + 4 * version]) + FIRST[mechanism] + _NEXT + b"c=biws,r=client,p=YQ=="
        whole = handshake(mechanism.encode()) + authenticate(1, FIRST[mechanism])
        yield b"\x10" + whole
        yield b"\x01" + whole
    for api_key in SPOKEN:
        yield b"f" + bytes([api_key % 128, 0, 0]) + bytes([ApiKey.SASL_HANDSHAKE, 1, 7]) + b"\0\x05PLAIN"


def serve(request: Request) -> Any:
    """Answers a request that came before a login. Only ApiVersions may come then."""
    assert request.api_key is ApiKey.API_VERSIONS, f"{request.api_key} of a client that has not logged in"
    return [b""]


def password_users() -> MetadataImage:
    """Returns an image with one user, whose password the fuzzer cannot find."""
    password = Secret(secrets.token_urlsafe(32))
    credentials = {
        ("alice", each): credential_of(each, salted_password(each, password, b"salt", ITERATIONS), b"salt", ITERATIONS)
        for each in ScramMechanism
    }
    return replace(MetadataImage.empty(), scram_credentials=credentials, cluster_secret=b"secret")


class Clients:
    """The listener, and whom it lets in."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        settings = {
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
            "connection.failed.authentication.delay.ms": "0",
        }
        clock = SystemClock()
        self._logins = Logins({"SASL": ListenerSaslSettings.parse(settings)}, clock, random.Random(1))
        self._logins.on_image(password_users())
        self._room = HandshakeLimit(PLACES)
        at = self._logins.at("SASL")
        assert at is not None
        self._sasl = SaslClients(at, self._room, clock)
        self.listener = KafkaListener(
            serve,
            RequestMemory(10_000_000),
            ConnectionLimit(PLACES),
            request_max_bytes=1_000_000,
            send_buffer_bytes=65_536,
            idle_max_ms=60_000,
            clock=clock,
            sasl=self._sasl,
        )

    def connect(self) -> KafkaConnection:
        assert not len(self._room), "a place stayed taken"
        connection = KafkaConnection(self.listener)
        self._sasl.expect(connection)
        return connection

    def check(self, connection: KafkaConnection) -> None:
        assert connection.principal == ANONYMOUS, f"somebody is {connection.principal}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=10_000_000)
    parser.add_argument("--corpus", type=pathlib.Path, default=pathlib.Path("build/fuzz/kafka_login"))
    parser.add_argument("--again", type=pathlib.Path, help="runs one input again")
    options = parser.parse_args()
    options.corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds()):
        (options.corpus / f"seed-{number:04}").write_bytes(seed)
    # A client that is refused is no news here.
    logging.getLogger().setLevel(logging.ERROR)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    clients = Clients(loop)
    target = Target(clients.listener, loop, connect=clients.connect, unpack=unpack, check=clients.check)
    if options.again:
        target(options.again.read_bytes())
        return
    flags = [f"-runs={options.inputs}", "-timeout=30", "-rss_limit_mb=2048", "-max_len=2000", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *flags, str(options.corpus)], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
