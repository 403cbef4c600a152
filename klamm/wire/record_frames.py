"""Frames of Kafka's protocol that carry Klamm's own messages with records.

The Kafka listener of a broker also takes the Produce, Fetch and ReplicaFetch requests of `proto/klamm/v1/broker.proto`,
as APIs with numbers that Kafka does not use. A frame is a size of 4 bytes, a request header of version 1, and the
message. The answer is a size, the correlation id, and the message. All numbers are big-endian.
"""

from __future__ import annotations

import struct
from typing import Final

PRODUCE: Final = 10_000
"""The API key of `ProduceRequest`. Its only version is 0."""
FETCH: Final = 10_001
"""The API key of `FetchRequest`. Its only version is 0. The answer is a `FetchResponse`."""
REPLICA_FETCH: Final = 10_002
"""The API key of `ReplicaFetchRequest`. Its only version is 0. The answer is a `ReplicaFetchResponse`. All requests of
a connection are one fetch session, and two of them may be in flight."""
VERSION: Final = 0

_HEADER: Final = struct.Struct(">ihhih")
"""The fields size, API key, version, correlation id and length of the client id."""
_SIZE_BYTES: Final = 4
ANSWER: Final = struct.Struct(">ii")
"""The start of an answer: the size of what follows the size, and the correlation id."""


def request_start(api_key: int, version: int, correlation_id: int, client_id: str, body_bytes: int) -> bytes:
    """Returns what precedes a request's body: the size and the header."""
    encoded = client_id.encode()
    size_bytes = _HEADER.size - _SIZE_BYTES + len(encoded) + body_bytes
    return _HEADER.pack(size_bytes, api_key, version, correlation_id, len(encoded)) + encoded
