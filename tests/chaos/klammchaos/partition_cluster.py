"""Three controllers and three brokers, each at a node of its own, and a topic with three replicas."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from klamm_process import free_port
from server_process import ServerProcess

from klamm.admin import AsyncAdmin, NewTopic
from klamm.admin.types import ElectionType, PartitionDescription
from klamm.errors import EXCEPTIONS, ErrorCode, KlammError
from klamm.model import TopicPartition
from klammchaos.struck_processes import StruckProcesses
from klammchaos.surroundings import Surroundings

TOPIC: Final = "t"
PARTITIONS: Final = 4
CONTROLLERS: Final = (1, 2, 3)
BROKERS: Final = (11, 12, 13)
"""Nodes; also the brokers' ids."""
CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
DEADLINE_S: Final = 240.0
"""For what must come by itself, on machines that do other things too."""
DISK_SIZE: Final = "256m"
"""Half an hour of the load fits."""
T = TypeVar("T")

_NoReassignmentInProgressError = EXCEPTIONS[ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
_TopicAlreadyExistsError = EXCEPTIONS[ErrorCode.TOPIC_ALREADY_EXISTS]
SEGMENT_BYTES: Final = 1 << 20
"""Small, so that segments roll while faults strike."""


class PartitionCluster(StruckProcesses):
    """The brokers' log dirs are on disks of their own, where that is possible."""

    def __init__(
        self, directory: pathlib.Path, broker_package: str = "klamm_broker", coordinators: Sequence[int] = ()
    ) -> None:
        nodes = (*CONTROLLERS, *BROKERS, *coordinators)
        self.surroundings = Surroundings(nodes)
        addresses = {node: f"{self.surroundings.host(node)}:{free_port()}" for node in nodes}
        voters = ",".join(f"{node}@{addresses[node]}" for node in CONTROLLERS)
        servers = ",".join(addresses[node] for node in CONTROLLERS)
        self._directory = directory
        self.surroundings.mount({broker: self.log_dir(broker) for broker in BROKERS}, DISK_SIZE)

        def process(package: str, node: int, settings: dict[str, str]) -> ServerProcess:
            listener = {"listeners": f"GRPC://{addresses[node]}"}
            return ServerProcess(package, node, directory, {**listener, **settings}, self.surroundings.prefix(node))

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
                        broker_package,
                        node,
                        {
                            "log.dirs": str(self.log_dir(node)),
                            "controller.quorum.bootstrap.servers": servers,
                            "log.segment.bytes": str(SEGMENT_BYTES),
                        },
                    )
                    for node in BROKERS
                },
                **{
                    node: process("klamm_coordinator", node, {"controller.quorum.bootstrap.servers": servers})
                    for node in coordinators
                },
            }
        )
        self.bootstrap = ",".join(addresses[node] for node in BROKERS)
        self._admin: AsyncAdmin | None = None

    def log_dir(self, broker: int) -> pathlib.Path:
        return self._directory / f"broker-{broker}"

    async def begin(self, min_insync_replicas: int) -> None:
        """Starts everybody, and creates the topic."""
        self.start()
        topic = NewTopic(
            TOPIC,
            partition_count=PARTITIONS,
            replication_factor=len(BROKERS),
            configs={"min.insync.replicas": str(min_insync_replicas)},
        )

        async def create() -> None:
            if self._admin is None:
                self._admin = AsyncAdmin(bootstrap_servers=self.bootstrap)
            with contextlib.suppress(_TopicAlreadyExistsError):
                await self._admin.create_topics([topic])

        await self._insist(create)

    async def end(self) -> None:
        """Whatever became of it, nothing is left."""
        if self._admin is not None:
            await self._admin.close()
        self.close()
        self.surroundings.close()

    # What is asked of it. Each raises AssertionError when nobody does it for DEADLINE_S.

    async def move(self, replicas: Mapping[int, Sequence[int]]) -> None:
        """Begins to reassign partitions, or goes on with it."""
        wanted = {TopicPartition(TOPIC, partition): brokers for partition, brokers in replicas.items()}
        await self._insist(lambda: self.admin.alter_partition_reassignments(wanted))

    async def wait_moved(self, replicas: Mapping[int, Sequence[int]]) -> None:
        """Until partitions have exactly these replicas, in this order."""

        def is_moved(described: Sequence[PartitionDescription]) -> bool:
            return all(
                one.replicas == tuple(replicas[one.partition]) and not one.adding_replicas and not one.removing_replicas
                for one in described
                if one.partition in replicas
            )

        await self.wait_until(is_moved)

    async def cancel_moves(self) -> None:
        """Of every partition that is being reassigned; who has just got there stays."""
        moving = await self._insist(self.admin.list_partition_reassignments)

        async def cancel() -> None:
            with contextlib.suppress(_NoReassignmentInProgressError):
                await self.admin.alter_partition_reassignments(dict.fromkeys(moving))

        await self._insist(cancel)

    async def elect_preferred(self) -> None:
        """Has every partition led by the first of its replicas, where that one is in sync."""
        await self._insist(lambda: self.admin.elect_leaders(ElectionType.PREFERRED))

    async def leaders(self) -> dict[int, int]:
        """Leader by partition, as far as there is one."""
        described = await self._insist(self.partitions)
        return {one.partition: one.leader for one in described if one.leader in BROKERS}

    async def wait_whole(self) -> None:
        """Until every replica of every partition is in sync."""
        await self.wait_until(
            lambda described: all(one.leader in BROKERS and len(one.isr) == len(BROKERS) for one in described)
        )

    async def wait_serving(self, node: int) -> None:
        """Until that broker or coordinator is trusted with work."""
        until_s = time.monotonic() + DEADLINE_S
        while True:
            described = await self._insist(self.admin.describe_cluster)
            if any(one.node_id == node and not one.fenced for one in (*described.brokers, *described.coordinators)):
                return
            self.check_running()
            assert time.monotonic() < until_s, f"{node} does not serve after {DEADLINE_S} s: {described}"
            await asyncio.sleep(0.1)

    async def wait_until(self, is_so: Callable[[Sequence[PartitionDescription]], bool]) -> None:
        """Until the partitions are so."""
        until_s = time.monotonic() + DEADLINE_S
        while not is_so(described := await self._insist(self.partitions)):
            self.check_running()
            assert time.monotonic() < until_s, f"not so after {DEADLINE_S} s: {described}"
            await asyncio.sleep(0.1)

    @property
    def admin(self) -> AsyncAdmin:
        assert self._admin is not None
        return self._admin

    async def partitions(self) -> tuple[PartitionDescription, ...]:
        """As the controller has them. Raises KlammError."""
        described = await self.admin.describe_topics([TOPIC])
        return tuple(described[TOPIC].partitions)

    async def _insist(self, call: Callable[[], Awaitable[T]]) -> T:
        until_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                return await call()
            except KlammError as error:
                refusal = error
            self.check_running()
            assert time.monotonic() < until_s, f"nobody does it for {DEADLINE_S} s: {refusal!r}"
            await asyncio.sleep(0.2)
