"""The addresses of callers."""

from __future__ import annotations


def host_of(peer: str) -> str:
    """Returns the host of a gRPC peer as Kafka shows it: `/10.0.0.1` for `ipv4:10.0.0.1:50321`."""
    return "/" + peer.partition(":")[2].rpartition(":")[0].strip("[]")
