"""A method of streams of bytes, which no service has."""

from __future__ import annotations

from klamm.wire.service import Method


def a_stream(*, client: bool, server: bool) -> Method:
    """Returns a method whose messages are bytes."""
    return Method(
        name="stream",
        path="/klamm.v1.Test/Stream",
        client_streaming=client,
        server_streaming=server,
        request_serializer=None,
        request_deserializer=None,
        response_serializer=None,
        response_deserializer=None,
    )
