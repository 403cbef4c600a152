"""Failure domains: a `broker.rack` or `client.rack` is a path from the largest domain to the smallest, as `dc1/host7`.

The whole path names a host, or the smallest domain that the operator names. A rack without a slash is a path of one
level. A server or client without a rack has the empty path, and all of these count as one host, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

SEPARATOR: Final = "/"


def shared_levels(rack: str, other: str) -> int:
    """Returns the number of levels, from the largest domain on, that both paths have in common."""
    shared = 0
    for mine, theirs in zip(rack.split(SEPARATOR), other.split(SEPARATOR), strict=False):
        if mine != theirs:
            break
        shared += 1
    return shared


def nearness(client_rack: str, rack: str) -> int:
    """Returns how near a server in `rack` is to a client. 0 means that they have no domain in common. A server in the
    client's own rack is nearest, then one that shares more levels of the path."""
    if not client_rack or not rack:
        return 0
    return shared_levels(client_rack, rack) + (client_rack == rack)


def crowding(rack: str, others: Iterable[str]) -> tuple[int, ...]:
    """Returns how crowded a place in `rack` is for one more replica, if the partition's other replicas are in `others`.

    The first item counts the replicas on the same host. The next items count those in the same domain, from the largest
    domain on. The place with the smallest result is best."""
    levels = [0] * (rack.count(SEPARATOR) + 1)
    same_host = 0
    for other in others:
        same_host += rack == other
        for level in range(shared_levels(rack, other)):
            levels[level] += 1
    return same_host, *levels


def on_host(rack: str | None, host: str) -> str:
    """Returns the path of a server on that host. A rack of one level is the domain around the host. A rack with a
    slash already ends with the host."""
    if not rack:
        return host
    return rack if SEPARATOR in rack else f"{rack}{SEPARATOR}{host}"


def level_names(rack: str) -> list[str]:
    """Returns the names of all domains that a server in `rack` belongs to, the largest first: `dc1`, `dc1/host7`."""
    parts = rack.split(SEPARATOR)
    return [SEPARATOR.join(parts[: end + 1]) for end in range(len(parts))]
