"""`klamm-health HOST:PORT`: asks a server for its gRPC health. Container engines run this command as a health check.

With `--config FILE` it uses the TLS settings of a client's properties file.

It writes the HTTP/2 frames of one unary call of grpc.health.v1 by hand. The command starts every few seconds in every
container, and an import of gRPC would need five times as much CPU as all the rest."""

from __future__ import annotations

import argparse
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ssl import SSLContext

LIVENESS: Final = "liveness"
"""The name under which a server is SERVING while its event loop runs. Under the empty name, a server is SERVING while
it takes part in the cluster."""

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_END_STREAM = _ACK = 0x1
_END_HEADERS: Final = 0x4
_FRAME_MAX_BYTES: Final = 16_384
"""The maximum size of a frame unless the peer was allowed more (HTTP/2's default)."""
_STATUSES: Final = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}


class ProbeError(Exception):
    """The server did not tell its health; the text says why."""


def check(host: str, port: int, *, service: str = "", timeout_s: float, tls: SSLContext | None = None) -> str:
    """Returns the name of the ServingStatus of one of the server's services. Raises ProbeError, or OSError, also for
    TLS errors."""
    message = b"" if not service else bytes([0x0A, len(service)]) + service.encode()
    with _connected(host, port, timeout_s, tls) as connection:
        connection.sendall(
            _PREFACE
            + _frame(_SETTINGS, 0, 0, b"")
            + _frame(_HEADERS, _END_HEADERS, 1, _header_block(f"{host}:{port}"))
            + _frame(_DATA, _END_STREAM, 1, struct.pack(">BI", 0, len(message)) + message)
        )
        answer = b"".join(_answer(connection))
    # protobuf leaves out a status of 0, so the message is empty.
    if len(answer) < 5:
        raise ProbeError(f"no health service knows {service!r}" if service else "it has no health service")
    return _STATUSES.get(answer[6] if len(answer) > 6 else 0, "UNKNOWN")


def _connected(host: str, port: int, timeout_s: float, tls: SSLContext | None) -> socket.socket:
    connection = socket.create_connection((host, port), timeout=timeout_s)
    if tls is None:
        return connection
    tls.set_alpn_protocols(["h2"])
    try:
        return tls.wrap_socket(connection, server_hostname=host)
    except OSError:
        connection.close()
        raise


def read_tls(path: str) -> SSLContext | None:
    """Returns the TLS context that a properties file describes, or None if `security.protocol` is neither SSL nor
    SASL_SSL. Health checks need no login.

    The file is parsed by hand, because the checks of the clients' configuration take ten times as long. Raises
    OSError."""
    import ssl

    with open(path, encoding="utf-8") as file:
        lines = [line.partition("=") for line in file if line.strip() and line.strip()[0] not in "#!"]
    given = {name.strip(): value.strip() for name, _, value in lines}
    if given.get("security.protocol") not in ("SSL", "SASL_SSL"):
        return None
    context = ssl.create_default_context(cafile=given.get("ssl.truststore.location"))
    if keystore := given.get("ssl.keystore.location"):
        # A function instead of None, because with None OpenSSL would ask for the password at the terminal.
        context.load_cert_chain(keystore, password=lambda: given.get("ssl.key.password", ""))
    return context


def _answer(connection: socket.socket) -> Iterator[bytes]:
    """Yields the data frames of stream 1."""
    while True:
        size, kind, flags, stream = _frame_header(_receive(connection, 9))
        if size > _FRAME_MAX_BYTES:
            raise ProbeError(f"it does not speak HTTP/2: a frame of {size} bytes")
        payload = _receive(connection, size)
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            connection.sendall(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        elif kind in (_RST_STREAM, _GOAWAY):
            raise ProbeError("it refused the call")
        elif stream == 1 and kind == _DATA:
            yield payload
        if stream == 1 and flags & _END_STREAM:
            return


def _frame_header(header: bytes) -> tuple[int, int, int, int]:
    """Returns size, type, flags and stream of a frame (RFC 9113, section 4.1)."""
    high, low, kind, flags, stream = struct.unpack(">BHBBI", header)
    return high << 16 | low, kind, flags, stream & 0x7FFFFFFF


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">BHBBI", 0, len(payload), kind, flags, stream) + payload


def _header_block(authority: str) -> bytes:
    """Returns the request's headers in HPACK, without dynamic table and Huffman coding (RFC 7541). Static entries 3 and
    6 are POST and http."""
    return b"".join(
        [
            b"\x83\x86",
            b"\x04" + _text("/grpc.health.v1.Health/Check"),
            b"\x01" + _text(authority),
            b"\x0f\x10" + _text("application/grpc"),
            b"\x00" + _text("te") + _text("trailers"),
        ]
    )


def _text(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > 126:
        raise ProbeError(f"{text!r} is too long")
    return bytes([len(encoded)]) + encoded


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ProbeError("it closed the connection")
        received += part
    return bytes(received)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the status. Returns 0 if it is SERVING, otherwise 1."""
    parser = argparse.ArgumentParser(prog="klamm-health", description="Asks a server for its gRPC health.")
    parser.add_argument("server", metavar="HOST:PORT")
    parser.add_argument("--service", default="", help=f"a gRPC service, or {LIVENESS}; by default the server's part")
    parser.add_argument("--config", metavar="FILE", help="A properties file with security.protocol=SSL and ssl.*.")
    parser.add_argument("--timeout", type=float, default=3.0, metavar="SECONDS")
    options = parser.parse_args(arguments)
    host, _, port = options.server.rpartition(":")
    if not host or not port.isdecimal():
        parser.error(f"{options.server!r} is not of the form HOST:PORT")
    try:
        tls = read_tls(options.config) if options.config else None
        status = check(host.strip("[]"), int(port), service=options.service, timeout_s=options.timeout, tls=tls)
    except (OSError, ProbeError) as error:
        status = f"{options.server}: {error}"
    print(status)  # noqa: T201 - what a container engine keeps of it
    return 0 if status == "SERVING" else 1


if __name__ == "__main__":
    sys.exit(main())
