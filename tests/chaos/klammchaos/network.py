"""Cables that can be pulled: each node in a network namespace of its own, all on one bridge with the clients.

A cut is a route into a black hole at its sender. Packets vanish in that one direction, acknowledgements of TCP among
them, and neither side gets an error. The names of devices are visible only in the run's own namespace.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence

from tests.chaos.klammchaos import namespaces

_BRIDGE = "klamm0"
_SUBNET = "10.77.0"
CLIENTS = 254
"""The node of all clients, which have no node of their own. It can only be the receiver of a cut."""

Link = tuple[int, int]
"""A link from one node to another."""


class Network:
    """The network of the nodes. Its namespaces last until `close`, even if the processes in them have ended. Raises
    NotPossibleError."""

    def __init__(self, node_ids: Iterable[int]) -> None:
        namespaces.require_own()
        self._holders: dict[int, subprocess.Popen[str]] = {}
        self._cut: set[Link] = set()
        try:
            namespaces.run("ip", "link", "set", "lo", "up")
            namespaces.run("ip", "link", "add", _BRIDGE, "type", "bridge")
            namespaces.run("ip", "addr", "add", f"{_SUBNET}.{CLIENTS}/24", "dev", _BRIDGE)
            namespaces.run("ip", "link", "set", _BRIDGE, "up")
            for node_id in node_ids:
                self._add(node_id)
        except namespaces.NotPossibleError:
            self.close()
            raise

    def host(self, node_id: int) -> str:
        """Returns the node's address."""
        return f"{_SUBNET}.{node_id}"

    def prefix(self, node_id: int) -> Sequence[str]:
        """Returns the command prefix that runs a command in the network of that node, in a process of its own."""
        return "nsenter", f"--net=/proc/{self._holders[node_id].pid}/ns/net"

    def cut(self, links: Iterable[Link]) -> None:
        """Drops all packets on these links from now on, in these directions."""
        for sender, receiver in set(links) - self._cut:
            namespaces.run(*self.prefix(sender), "ip", "route", "add", "blackhole", self.host(receiver))
            self._cut.add((sender, receiver))

    def heal(self) -> None:
        """Ends all cuts."""
        for sender, receiver in sorted(self._cut):
            namespaces.run(*self.prefix(sender), "ip", "route", "del", "blackhole", self.host(receiver))
        self._cut.clear()

    def close(self) -> None:
        for holder in self._holders.values():
            assert holder.stdin is not None
            assert holder.stdout is not None
            holder.stdin.close()
            holder.wait()
            holder.stdout.close()

    def _add(self, node_id: int) -> None:
        # The holder ends when its standard input is closed, at the latest when this process ends.
        command = ["unshare", "--net", "sh", "-c", "echo ready; exec cat"]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._holders[node_id] = holder
        assert holder.stdout is not None
        if holder.stdout.readline() != "ready\n":
            raise namespaces.NotPossibleError("unshare --net")
        cable = f"veth{node_id}"
        namespaces.run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        namespaces.run("ip", "link", "set", cable, "master", _BRIDGE, "up")
        inside = [*self.prefix(node_id), "ip"]
        namespaces.run(*inside, "addr", "add", f"{self.host(node_id)}/24", "dev", "eth0")
        namespaces.run(*inside, "link", "set", "eth0", "up")
        namespaces.run(*inside, "link", "set", "lo", "up")
