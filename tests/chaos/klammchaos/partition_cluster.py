"""The operations of a run on three controllers, three brokers and a topic with three replicas. They are the same for
every kind of cluster."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import pathlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, TypeVar

from klamm.acls import AclBinding
from klamm.admin import AsyncAdmin, NewTopic
from klamm.admin.types import ElectionType, PartitionDescription
from klamm.errors import EXCEPTIONS, ErrorCode, KlammError
from klamm.model import TopicPartition
from tests.chaos.klammchaos.means import Means
from tests.chaos.klammchaos.surroundings import Surroundings

TOPIC: Final = "t"
ADMIN: Final = "admin"
PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
"""The users of a cluster in which clients log in: ADMIN, PRODUCER and CONSUMER."""
PARTITIONS: Final = 4
BROKERS: Final = (1, 2, 3)
CONTROLLERS: Final = (101, 102, 103)
"""The nodes of the controllers. The nodes of the brokers (BROKERS) are also the brokers' ids."""
DEADLINE_S: Final = 240.0
"""The longest wait for an event that must happen by itself, on machines that have other work too."""
DISK_SIZE: Final = "256m"
"""The size of each broker's disk. The records of half an hour fit on it."""
T = TypeVar("T")

_NoReassignmentInProgressError = EXCEPTIONS[ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
_TopicAlreadyExistsError = EXCEPTIONS[ErrorCode.TOPIC_ALREADY_EXISTS]
SEGMENT_BYTES: Final = 1 << 20
"""The size of segments. It is small, so that segments roll while faults strike."""
SEGMENT_MS: Final = 10_000
"""The age at which segments roll. It is low, so that short runs have closed segments, too."""


class PartitionCluster(abc.ABC):
    """A cluster that faults can strike. Each broker's log directory is on a disk of its own if this machine allows
    it."""

    surroundings: Surroundings
    bootstrap: str
    rights: Sequence[AclBinding] = ()
    """The rights that users need besides those in the settings."""

    def __init__(self) -> None:
        self._admin: AsyncAdmin | None = None

    def client(self, who: str) -> dict[str, str]:
        """Returns the settings with which a Klamm client of the user `who` connects."""
        return {"bootstrap.servers": self.bootstrap}

    # The operations that each kind of cluster implements: its means and the control of its processes

    @property
    @abc.abstractmethod
    def means(self) -> frozenset[Means]:
        """The means that faults can use in this cluster."""

    @abc.abstractmethod
    def log_dir(self, broker: int) -> pathlib.Path: ...

    @abc.abstractmethod
    def start(self) -> None:
        """Starts all servers."""

    @abc.abstractmethod
    def kill(self, nodes: Iterable[int]) -> None:
        """Kills the nodes with SIGKILL, all at once, and blocks until they have ended."""

    @abc.abstractmethod
    def stop(self, node: int) -> None:
        """Stops the node with SIGTERM, which must end it cleanly, and blocks until it has ended."""

    @abc.abstractmethod
    def restart(self, nodes: Iterable[int]) -> None:
        """Starts the nodes that do not run, unless the cluster restarts them itself."""

    @abc.abstractmethod
    def frozen(self, nodes: Iterable[int]) -> AbstractContextManager[None]:
        """Freezes the nodes with SIGSTOP within the context, and resumes them with SIGCONT."""

    @abc.abstractmethod
    def stop_brokers(self) -> None:
        """Stops all brokers cleanly and for good. Blocks."""

    @abc.abstractmethod
    async def wait_up(self) -> None:
        """Waits until every server runs. From then on, no server may be down."""

    @abc.abstractmethod
    def check_running(self) -> None:
        """Raises AssertionError if a process ended by itself."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends all processes that are left."""

    # From the start to the end

    async def begin(self, min_insync_replicas: int) -> None:
        """Starts all servers, and creates the topic."""
        self.start()
        topic = NewTopic(
            TOPIC,
            partition_count=PARTITIONS,
            replication_factor=len(BROKERS),
            configs={"min.insync.replicas": str(min_insync_replicas), "segment.ms": str(SEGMENT_MS)},
        )

        async def create() -> None:
            if self._admin is None:
                self._admin = AsyncAdmin(self.client(ADMIN))
            if self.rights:
                await self._admin.create_acls(self.rights)
            with contextlib.suppress(_TopicAlreadyExistsError):
                await self._admin.create_topics([topic])

        await self._insist(create)

    async def end(self) -> None:
        """Ends everything that is left of the cluster."""
        if self._admin is not None:
            await self._admin.close()
        self.close()
        self.surroundings.close()

    # The operations below raise AssertionError if they do not succeed within DEADLINE_S.

    async def move(self, replicas: Mapping[int, Sequence[int]]) -> None:
        """Begins to reassign partitions, or continues an earlier attempt."""
        wanted = {TopicPartition(TOPIC, partition): brokers for partition, brokers in replicas.items()}
        await self._insist(lambda: self.admin.alter_partition_reassignments(wanted))

    async def wait_moved(self, replicas: Mapping[int, Sequence[int]]) -> None:
        """Waits until partitions have exactly these replicas, in this order."""

        def is_moved(described: Sequence[PartitionDescription]) -> bool:
            return all(
                one.replicas == tuple(replicas[one.partition]) and not one.adding_replicas and not one.removing_replicas
                for one in described
                if one.partition in replicas
            )

        await self.wait_until(is_moved)

    async def cancel_moves(self) -> None:
        """Cancels the move of every partition that is being reassigned. A replica that has already been moved stays."""
        moving = await self._insist(self.admin.list_partition_reassignments)

        async def cancel() -> None:
            with contextlib.suppress(_NoReassignmentInProgressError):
                await self.admin.alter_partition_reassignments(dict.fromkeys(moving))

        await self._insist(cancel)

    async def elect_preferred(self) -> None:
        """Elects the first replica of every partition as its leader, if that replica is in sync."""
        await self._insist(lambda: self.admin.elect_leaders(ElectionType.PREFERRED))

    async def scrub(self, broker: int) -> None:
        """Makes a broker read its closed segments, and waits until it has read them."""
        wanted = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        await self._insist(lambda: self.admin.scrub_logs(wanted, [broker]))
        until_s = time.monotonic() + DEADLINE_S
        while any(
            one.asked for one in (await self._insist(lambda: self.admin.describe_scrubs(wanted, [broker])))[broker]
        ):
            self.check_running()
            assert time.monotonic() < until_s, f"broker {broker} reads for {DEADLINE_S} s"
            await asyncio.sleep(0.1)

    async def leaders(self) -> dict[int, int]:
        """Returns the leader of each partition, by partition. Partitions without a leader are left out."""
        described = await self._insist(self.partitions)
        return {one.partition: one.leader for one in described if one.leader in BROKERS}

    async def wait_whole(self) -> None:
        """Waits until every replica of every partition is in sync."""
        await self.wait_until(
            lambda described: all(one.leader in BROKERS and len(one.isr) == len(BROKERS) for one in described)
        )

    async def wait_serving(self, node: int) -> None:
        """Waits until that broker or coordinator is unfenced."""
        until_s = time.monotonic() + DEADLINE_S
        while True:
            described = await self._insist(self.admin.describe_cluster)
            if any(one.node_id == node and not one.fenced for one in (*described.brokers, *described.coordinators)):
                return
            self.check_running()
            assert time.monotonic() < until_s, f"{node} does not serve after {DEADLINE_S} s: {described}"
            await asyncio.sleep(0.1)

    async def wait_until(self, is_so: Callable[[Sequence[PartitionDescription]], bool]) -> None:
        """Waits until `is_so` is true of the partitions."""
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
        """Returns the partitions as the controller describes them. Raises KlammError."""
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
