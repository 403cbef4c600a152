"""Three controllers and three brokers, each at a node of its own, and a topic with three replicas."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import time
from collections.abc import Iterable, Iterator
from typing import Final

from klamm_process import free_port
from server_process import ServerProcess

from klamm.admin import AsyncAdmin, NewTopic
from klamm.admin.types import PartitionDescription
from klamm.errors import KlammError
from klammchaos.namespaces import NotPossibleError
from klammchaos.network import Link, Network
from klammchaos.struck_processes import StruckProcesses

TOPIC: Final = "t"
PARTITIONS: Final = 4
CONTROLLERS: Final = (1, 2, 3)
BROKERS: Final = (11, 12, 13)
"""Nodes; also the brokers' ids."""
HOST: Final = "127.0.0.1"
"""Of everybody, where they cannot have a network."""
CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
DEADLINE_S: Final = 90.0
"""For what must come by itself."""
SEGMENT_BYTES: Final = 1 << 20
"""Small, so that segments roll while faults strike."""


class PartitionCluster(StruckProcesses):
    """`network` is None where it is not possible; `missing` says why."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.missing: list[str] = []
        self.network: Network | None = None
        try:
            self.network = Network((*CONTROLLERS, *BROKERS))
        except NotPossibleError as error:
            self.missing.append(f"cut: {error}")
        addresses = {node: f"{self._host(node)}:{free_port()}" for node in (*CONTROLLERS, *BROKERS)}
        voters = ",".join(f"{node}@{addresses[node]}" for node in CONTROLLERS)
        servers = ",".join(addresses[node] for node in CONTROLLERS)
        self._directory = directory

        def process(package: str, node: int, settings: dict[str, str]) -> ServerProcess:
            prefix = self.network.prefix(node) if self.network else ()
            return ServerProcess(
                package, node, directory, {"listeners": f"GRPC://{addresses[node]}", **settings}, prefix
            )

        super().__init__(
            {
                **{
                    node: process(
                        "klamm_controller",
                        node,
                        {
                            "metadata.log.dir": str(directory / f"controller-{node}"),
                            "cluster.id": CLUSTER_ID,
                            "controller.quorum.voters": voters,
                        },
                    )
                    for node in CONTROLLERS
                },
                **{
                    node: process(
                        "klamm_broker",
                        node,
                        {
                            "log.dirs": str(self.log_dir(node)),
                            "controller.quorum.bootstrap.servers": servers,
                            "log.segment.bytes": str(SEGMENT_BYTES),
                        },
                    )
                    for node in BROKERS
                },
            }
        )
        self.bootstrap = ",".join(addresses[node] for node in BROKERS)
        self._admin: AsyncAdmin | None = None

    def log_dir(self, broker: int) -> pathlib.Path:
        return self._directory / f"broker-{broker}"

    def _host(self, node: int) -> str:
        return self.network.host(node) if self.network else HOST

    async def begin(self, min_insync_replicas: int) -> None:
        """Starts everybody, and creates the topic."""
        self.start()
        until_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                self._admin = AsyncAdmin(bootstrap_servers=self.bootstrap)
                topic = NewTopic(
                    TOPIC,
                    partition_count=PARTITIONS,
                    replication_factor=len(BROKERS),
                    configs={"min.insync.replicas": str(min_insync_replicas)},
                )
                await self._admin.create_topics([topic])
                return
            except KlammError:
                self.check_running()
                assert time.monotonic() < until_s, "the brokers did not all register"
                await asyncio.sleep(0.2)

    async def end(self) -> None:
        """Whatever became of it, nothing is left."""
        if self._admin is not None:
            await self._admin.close()
        self.close()
        if self.network is not None:
            self.network.close()

    @contextlib.contextmanager
    def cut(self, links: Iterable[Link]) -> Iterator[None]:
        """Nothing gets through these."""
        assert self.network is not None
        self.network.cut(links)
        try:
            yield
        finally:
            self.network.heal()

    # What is seen of it

    async def partitions(self) -> tuple[PartitionDescription, ...]:
        """As the controller has them. Raises KlammError."""
        assert self._admin is not None
        described = await self._admin.describe_topics([TOPIC])
        return tuple(described[TOPIC].partitions)

    async def leaders(self) -> dict[int, int]:
        """Leader by partition, as far as there is one. Raises KlammError when nobody answers for DEADLINE_S."""
        until_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                return {one.partition: one.leader for one in await self.partitions() if one.leader in BROKERS}
            except KlammError:
                if time.monotonic() >= until_s:
                    raise

    async def wait_whole(self) -> None:
        """Until every replica of every partition is in sync. Raises AssertionError after DEADLINE_S."""
        until_s = time.monotonic() + DEADLINE_S
        story: object = None
        while time.monotonic() < until_s:
            self.check_running()
            try:
                story = await self.partitions()
            except KlammError as error:
                story = error
            else:
                if all(one.leader in BROKERS and len(one.isr) == len(BROKERS) for one in story):
                    return
            await asyncio.sleep(0.1)
        raise AssertionError(f"not in sync again after {DEADLINE_S} s: {story}")
