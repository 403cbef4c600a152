"""How connections are kept: every option of every channel, in one table.

A name that a transport has no use for means nothing to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from klamm.config import ClientConfig

UNLIMITED: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelOptions:
    """One kind of channel. Each has connections of its own: others neither close them nor make them back off."""

    receive_max_bytes: int = UNLIMITED
    """The longest message that is taken; one that is longer ends its call."""
    reconnect_backoff_ms: int
    """The wait before the second attempt to connect; doubles up to `reconnect_backoff_max_ms`."""
    reconnect_backoff_max_ms: int
    connection_setup_timeout_ms: int
    """The time for one attempt to connect."""
    keepalive_time_ms: int
    """While a call is under way, the other side is asked for a sign of life after so much silence: a cable that was
    pulled sends no FIN, nor does a process that hangs. Servers take such a ping every 5 seconds."""
    keepalive_timeout_ms: int
    """The time without an answer after which the connection is lost."""
    name_resolution_min_ms: int = 1_000
    """The time between two look-ups of a name. A restarted container may have another address."""


SERVERS: Final = ChannelOptions(
    reconnect_backoff_ms=100,
    reconnect_backoff_max_ms=1_000,
    connection_setup_timeout_ms=20_000,
    # Together less than a broker's session.
    keepalive_time_ms=6_000,
    keepalive_timeout_ms=2_000,
)
"""The options of a channel from one server to another."""

CONTROLLERS: Final = replace(SERVERS, receive_max_bytes=100 * 1024 * 1024)
"""The options for a controller, whose messages are no longer than socket.request.max.bytes' default."""

QUORUM: Final = replace(
    SERVERS,
    # An election waits for it.
    reconnect_backoff_ms=50,
    reconnect_backoff_max_ms=500,
    connection_setup_timeout_ms=500,
)
"""The options of a channel between the controllers of a quorum."""


def client_options(config: ClientConfig) -> ChannelOptions:
    """Returns the options of a client's channels to servers."""
    return ChannelOptions(
        receive_max_bytes=config.receive_message_max_bytes,
        reconnect_backoff_ms=config.reconnect_backoff_ms,
        reconnect_backoff_max_ms=config.reconnect_backoff_max_ms,
        connection_setup_timeout_ms=config.socket_connection_setup_timeout_ms,
        keepalive_time_ms=30_000,
        keepalive_timeout_ms=10_000,
    )
