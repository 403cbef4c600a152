"""Which addresses the host of an ACL means: `*` all, an address itself, a CIDR range every address in it (KIP-1276).

Addresses are compared as such, so `::1` is Java's `0:0:0:0:0:0:0:1`, and an IPv4-mapped IPv6 address is the IPv4
address.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final

from klamm.acls import WILDCARD

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_HOSTS_MAX: Final = 8192
"""The maximum number of parsed hosts that are cached."""


def host_matches(acl_host: str, host: str) -> bool:
    """Returns whether an ACL's host matches the address `host`. A text that is neither an address nor a range matches
    only itself."""
    if acl_host in (WILDCARD, host):
        return True
    address = _address(host)
    if address is None:
        return False
    if "/" in acl_host:
        network = _network(acl_host)
        return network is not None and address in network
    return _address(acl_host) == address


def host_problem(acl_host: str) -> str:
    """Returns why no ACL can have that host, or empty text. As in Kafka, a name is accepted but matches no client."""
    if not acl_host:
        return "Host should not be empty"
    if "/" in acl_host and _network(acl_host) is None:
        return f"Invalid CIDR notation '{acl_host}': expected an IPv4 or IPv6 address, '/' and the prefix's length"
    return ""


def canonical_address(text: str) -> str:
    """Returns the canonical form of an address. Any other text stays as it is."""
    address = _address(text)
    return text if address is None else str(address)


def network_of(text: str) -> str:
    """Returns the addresses that one client may have: the first 64 bits of an IPv6 address, or an IPv4 address. Any
    other text stays as it is."""
    address = _address(text)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return text if address is None else str(address)


@lru_cache(_HOSTS_MAX)
def _address(text: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


@lru_cache(_HOSTS_MAX)
def _network(text: str) -> _Network | None:
    """Returns the network of a range, or None. As in Kafka, bits after the prefix are allowed, but netmasks and
    IPv4-mapped ranges are not."""
    address, _, length = text.partition("/")
    if not (length.isascii() and length.isdecimal()):
        return None
    try:
        network = ipaddress.ip_network(f"{address}/{length}", strict=False)
    except ValueError:
        return None
    is_mapped = isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped is not None
    return None if is_mapped else network
