"""Drops packets by port, so that servers cannot be reached, or cannot answer, although all processes share one host.

Policy routing decides about a packet before the table of local addresses is asked, and it distinguishes ports. A client
that connects from a port of its own choice is therefore never cut. A server that cannot be reached still reaches the
others. The rules are in the run's own network namespace.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Final, Literal

from tests.chaos.klammchaos import namespaces

Direction = Literal["to", "from"]
"""The direction of the dropped packets: to a server's port, or from it."""
_PREFERENCE: Final = "10"
_LOCAL_PREFERENCE: Final = "100"
"""The new preference of the table of local addresses. By default, Linux asks this table first."""


class PortCuts:
    """The rules that drop packets. Raises NotPossibleError."""

    def __init__(self) -> None:
        namespaces.require_own()
        namespaces.run("ip", "link", "set", "lo", "up")
        namespaces.run("ip", "rule", "add", "pref", _LOCAL_PREFERENCE, "table", "local")
        namespaces.run("ip", "rule", "del", "pref", "0")

    @contextlib.contextmanager
    def cut(self, ports: Iterable[int], directions: Iterable[Direction]) -> Iterator[None]:
        """Drops all packets to or from these ports."""
        rules = [("dport" if way == "to" else "sport", str(port)) for port in ports for way in directions]
        for rule in rules:
            _change("add", rule)
        try:
            yield
        finally:
            for rule in rules:
                _change("del", rule)


def _change(verb: str, rule: tuple[str, str]) -> None:
    namespaces.run("ip", "rule", verb, "pref", _PREFERENCE, "ipproto", "tcp", *rule, "blackhole")
