"""The start of a connection to a Kafka listener: is it the expected broker (KIP-1242), and the login (KIP-152)."""

from __future__ import annotations

import math
import struct
from typing import Final

from klamm.errors import BrokerError, ErrorCode
from klamm.rpc.login import LoginFailed, SaslSource
from klamm.rpc.record_connection import RecordConnection
from klamm.rpc.status import CallFailed, Status
from klamm.threads.in_thread import in_thread
from klamm.version import __version__

_HANDSHAKE: Final = (17, 1)
"""The API key and version of SaslHandshake."""
_AUTHENTICATE: Final = (36, 1)
"""The API key and version of SaslAuthenticate. This version has the session's lifetime and no tagged fields."""
_API_VERSIONS: Final = (18, 5)
"""The API key and the version of ApiVersions since which it names the expected broker."""
_NO_TAGS: Final = b"\x00"
_SOFTWARE: Final = ("klamm-python", __version__)
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


async def expect_broker(connection: RecordConnection, cluster_id: str, node_id: int, *, timeout_ms: int) -> None:
    """Raises CallFailed if the other side is not that broker of that cluster. The address may lead elsewhere: for
    example, a tunnel or a published port may lead only the gRPC listener to this machine."""
    texts = b"".join(map(_compact, (*_SOFTWARE, cluster_id)))
    answer = await connection.call(*_API_VERSIONS, [_NO_TAGS + texts + _INT32.pack(node_id) + _NO_TAGS], timeout_ms)
    (code,) = _INT16.unpack_from(answer)
    if code:
        error = ErrorCode.of(code).name
        raise CallFailed(Status.UNAVAILABLE, f"it is not broker {node_id} of cluster {cluster_id}: {error}")


async def log_in(connection: RecordConnection, source: SaslSource, *, timeout_ms: int) -> float:
    """Logs in, and returns the lifetime of the session in seconds, or infinity. Raises CallFailed, which is LoginFailed
    if the broker refused the login."""
    client = await in_thread(source.client)
    name = client.mechanism_name.encode()
    answer = await connection.call(*_HANDSHAKE, [_INT16.pack(len(name)) + name], timeout_ms)
    _check(_INT16.unpack_from(answer)[0], f"the mechanism {client.mechanism_name}")
    lifetime_s = math.inf
    message: bytes | None = client.first()
    while message is not None:
        answer = await connection.call(*_AUTHENTICATE, [_INT32.pack(len(message)) + message], timeout_ms)
        challenge, lifetime_s = _read(answer)
        try:
            message = await in_thread(client.step, challenge)
        except BrokerError as error:
            raise LoginFailed(error.code, error.message) from error
    return lifetime_s


def _read(answer: bytes | bytearray) -> tuple[bytes, float]:
    """Returns the server's message and the session's lifetime in seconds. Raises LoginFailed."""
    (code,), (text_bytes,) = _INT16.unpack_from(answer), _INT16.unpack_from(answer, 2)
    position = 4 + max(0, text_bytes)
    _check(code, bytes(answer[4:position]).decode(errors="replace"))
    (size_bytes,) = _INT32.unpack_from(answer, position)
    end = position + 4 + size_bytes
    (lifetime_ms,) = _INT64.unpack_from(answer, end)
    return bytes(answer[position + 4 : end]), lifetime_ms / 1000 or math.inf


def _compact(text: str) -> bytes:
    """Returns a compact string of at most 126 bytes (KIP-482)."""
    encoded = text.encode()
    return bytes((len(encoded) + 1,)) + encoded


def _check(code: int, text: str) -> None:
    if code:
        raise LoginFailed(ErrorCode.of(code), text)
