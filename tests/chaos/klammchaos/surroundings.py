"""The cables and disks of all nodes, if this machine allows a run to have its own."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tests.chaos.klammchaos.disks import SmallDisk
from tests.chaos.klammchaos.namespaces import NotPossibleError
from tests.chaos.klammchaos.network import Link, Network

LOOPBACK: Final = "127.0.0.1"
"""The address of every server if the run has no network of its own."""


class Surroundings:
    """The network and the disks of the nodes. `missing` lists the faults that are not possible here, with the
    reasons."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self.missing: list[str] = []
        self._network: Network | None = None
        self._disks: dict[int, SmallDisk] = {}
        try:
            self._network = Network(nodes)
        except NotPossibleError as error:
            self.missing.append(f"cut: {error}")

    def mount(self, directories: Mapping[int, pathlib.Path], size: str) -> None:
        """Mounts a disk of that size at the directory of each of these nodes."""
        for node, directory in directories.items():
            directory.mkdir()
            try:
                self._disks[node] = SmallDisk(directory, size)
            except NotPossibleError as error:
                self.missing.append(f"full disk: {error}")
                return

    def save_disks(self) -> None:
        """Copies the content of each disk to a directory `...-saved`, because the disks vanish with the run's
        mounts."""
        for disk in self._disks.values():
            shutil.copytree(disk.directory, f"{disk.directory}-saved")

    def close(self) -> None:
        if self._network is not None:
            self._network.close()

    @property
    def has_network(self) -> bool:
        return self._network is not None

    @property
    def has_disks(self) -> bool:
        return bool(self._disks)

    def host(self, node: int) -> str:
        """Returns the address of the node."""
        return self._network.host(node) if self._network else LOOPBACK

    def prefix(self, node: int) -> Sequence[str]:
        """Returns the command prefix that runs a command in the network of that node, in a process of its own."""
        return self._network.prefix(node) if self._network else ()

    # The faults of the surroundings. All of them block.

    @contextlib.contextmanager
    def cut(self, links: Iterable[Link]) -> Iterator[None]:
        """Drops all packets on these links within the context."""
        assert self._network is not None
        self._network.cut(links)
        try:
            yield
        finally:
            self._network.heal()

    @contextlib.contextmanager
    def full(self, nodes: Iterable[int], except_bytes: int) -> Iterator[None]:
        """Fills the disks of the nodes within the context, and leaves about `except_bytes` of space on each."""
        victims = [self._disks[node] for node in nodes]
        for victim in victims:
            victim.fill(except_bytes)
        try:
            yield
        finally:
            for victim in victims:
                victim.free()
