"""The header of a request."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm_broker.kafka.api import APIS, ApiKey
from klamm_broker.kafka.codec.wire import MalformedRequestError, RequestReader

if TYPE_CHECKING:
    from klamm_broker.kafka.net.connection import KafkaConnection
    from klamm_broker.kafka.net.throttle import Throttle

_HEADER: Final = struct.Struct(">hhih")
"""The fields API key, version, correlation id, and the length of the client id, which is a classic string in every
version."""


class Request(NamedTuple):
    """A received request with its parsed header."""

    api_key: ApiKey
    version: int
    correlation_id: int
    client_id: str
    client_host: str
    frame: memoryview
    """The whole frame with its header. It is valid until the request is answered."""
    body_start: int
    """The position in `frame` where the header ends."""
    flexible: bool
    """True if the request's version has compact lengths."""
    throttle: Throttle | None = None
    """The costs of the request for its client, if quotas are set."""
    connection: KafkaConnection | None = None
    """The connection of a follower's fetch, which belongs to a stream."""

    @property
    def is_spoken(self) -> bool:
        """True if this broker supports the request's version."""
        versions = APIS[self.api_key].versions
        return versions.min <= self.version <= versions.max

    @property
    def throttle_ms(self) -> int:
        """The throttle time of the answer in milliseconds, as far as it is known now."""
        return 0 if self.throttle is None else self.throttle.ms

    def body(self) -> RequestReader:
        """Returns a reader of the body."""
        return RequestReader(self.frame, flexible=self.flexible, position=self.body_start)


def parse_request(frame: memoryview, client_host: str) -> Request:
    """Parses a request's header. Raises MalformedRequestError, also for an unsupported API or version, because Kafka
    closes such connections.

    Only ApiVersions is accepted in any version, because clients find the supported versions with it."""
    if len(frame) < _HEADER.size:
        raise MalformedRequestError(
            f"the request has {len(frame)} bytes; expected at least {_HEADER.size}, the size of a header"
        )
    number, version, correlation_id, client_id_size = _HEADER.unpack_from(frame)
    served = APIS.get(number)
    if served is None:
        raise MalformedRequestError(f"API key {number} is not supported")
    api_key, spoken = served.key, served.versions
    if not spoken.min <= version <= spoken.max and api_key is not ApiKey.API_VERSIONS:
        raise MalformedRequestError(
            f"version {version} of {api_key.name} is not supported; expected {spoken.min} to {spoken.max}"
        )
    reader = RequestReader(frame, flexible=version >= spoken.flexible, position=_HEADER.size)
    client_id = reader.text(client_id_size) if client_id_size > 0 else ""
    reader.skip_tagged_fields()
    return Request(
        api_key, version, correlation_id, client_id, client_host, frame, reader.position, version >= spoken.flexible
    )


def has_tagged_header(request: Request) -> bool:
    """Returns True if the answer's header ends with tagged fields. The header of ApiVersions never does (KIP-511)."""
    return request.flexible and request.api_key is not ApiKey.API_VERSIONS
