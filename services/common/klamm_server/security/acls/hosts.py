"""Which addresses the host of an ACL means: `*` all, an address itself, a CIDR range every address in it (KIP-1276).

Addresses are compared as such, so `::1` is Java's `0:0:0:0:0:0:0:1`, and an IPv4-mapped IPv6 address is the IPv4
address.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final

from klamm.acl_rules import network_of_range
from klamm.acls import WILDCARD

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
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
        network = network_of_range(acl_host)
        return network is not None and address in network
    return _address(acl_host) == address


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
