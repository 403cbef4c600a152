"""The options of all channels, in one table.

A transport ignores the options that it does not need."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from klamm.config import ClientConfig

UNLIMITED: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelOptions:
    """The options of one kind of channel. Each kind has its own connections, so that channels of other kinds neither
    close them nor make them back off."""

    receive_max_bytes: int = UNLIMITED
    """The maximum size of a received message. A larger one ends its call."""
    reconnect_backoff_ms: int
    """The wait before the second attempt to connect. It doubles up to `reconnect_backoff_max_ms`."""
    reconnect_backoff_max_ms: int
    connection_setup_timeout_ms: int
    """The time for one attempt to connect."""
    keepalive_time_ms: int
    """The silence during a call after which this side pings the other. A cut cable or a hanging process sends no FIN.
    Servers accept such a ping every 5 seconds."""
    keepalive_timeout_ms: int
    """The time without an answer after which the connection is lost."""
    name_resolution_min_ms: int = 1_000
    """The minimum time between two look-ups of a name. A restarted container may have another address."""


SERVERS: Final = ChannelOptions(
    reconnect_backoff_ms=100,
    reconnect_backoff_max_ms=1_000,
    connection_setup_timeout_ms=20_000,
    # The sum of both is less than a broker's session timeout.
    keepalive_time_ms=6_000,
    keepalive_timeout_ms=2_000,
)
"""The options of a channel from one server to another."""

CONTROLLERS: Final = replace(SERVERS, receive_max_bytes=100 * 1024 * 1024)
"""The options of a channel to a controller. Its messages are at most as long as the default of
socket.request.max.bytes."""

QUORUM: Final = replace(
    SERVERS,
    # An election waits for the connection.
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
