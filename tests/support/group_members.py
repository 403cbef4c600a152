"""Members of consumer groups, light enough for a thousand in one process: the client's own membership and commits,
without fetching. Members of one group share a client, its connections and its knowledge of the coordinator.

`Group` follows the classic protocol, `ConsumerGroup` that of KIP-848.

Used by bench/coordinator_failover.py and tests/integration/coordinator/test_coordinator_failover.py.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass, field
from typing import Any

from klamm.cluster.client import KlammClient
from klamm.config import ClientConfig
from klamm.consumer.assignors.consumer_protocol import Subscription, encode_subscription
from klamm.consumer.classic.group_link import ClassicGroupLink
from klamm.consumer.config import ConsumerConfig
from klamm.consumer.group.identity import Identity
from klamm.consumer.kip848.group_link import ConsumerGroupLink
from klamm.consumer.kip848.membership import SubscribedTo
from klamm.consumer.offsets.offset_store import OffsetStore
from klamm.model import TopicPartition
from klamm.offsets import OffsetAndMetadata


@dataclass
class CommitLog:
    """The times of a group's acknowledged commits, and the offset of the last one."""

    acknowledged_s: list[float] = field(default_factory=list)
    offset: int = -1

    def gap_ms(self, struck_s: float) -> float:
        """Returns the time from the last acknowledgement before that moment to the first one after it, in
        milliseconds."""
        before = max(at for at in self.acknowledged_s if at <= struck_s)
        after = min(at for at in self.acknowledged_s if at > struck_s)
        return (after - before) * 1e3

    def longest_gap_ms(self, since_s: float) -> float:
        """Returns the longest time between two acknowledgements after that moment, in milliseconds."""
        at = [at for at in self.acknowledged_s if at >= since_s]
        return max(later - earlier for earlier, later in itertools.pairwise(at)) * 1e3


class PollingMember:
    """A member that polls often enough to follow every rebalance. `identity` is the latest identity that it got."""

    def __init__(self, client: KlammClient, config: ConsumerConfig, topic: str) -> None:
        self._topic = topic
        self.link = ClassicGroupLink(client, config, self._on_wake)
        self._wake = asyncio.Event()
        self._wake.set()
        self.assignments: list[tuple[Identity, bytes]] = []
        """Every assignment that the member got, with its identity at that time."""

    def _on_wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if (failure := self.link.take_failure()) is not None:
                raise failure
            taken = self.link.take_assignment()
            if taken is not None:
                self.assignments.append((self.link.identity, taken.assignment))
            if self.link.polled() is not None:
                self.link.prepared((("range", encode_subscription(Subscription(topics=(self._topic,)))),))

    @property
    def is_settled(self) -> bool:
        return bool(self.assignments) and self.assignments[-1][0] == self.link.identity and not self.link.needs_poll


class ConsumerMember:
    """A member that accepts and revokes partitions as soon as its coordinator requests it."""

    def __init__(self, client: KlammClient, config: ConsumerConfig, topic: str) -> None:
        self._subscription = SubscribedTo(frozenset({topic}), "")
        self.link = ConsumerGroupLink(client, config, self._on_wake)
        self._wake = asyncio.Event()
        self._wake.set()
        self.assignments: list[frozenset[TopicPartition]] = []
        """Every assignment that differed from the previous one. A coordinator repeats an assignment to a member that
        sends all of its state."""

    def _on_wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if (failure := self.link.take_failure()) is not None:
                raise failure
            assert not self.link.is_lost, "the coordinator has forgotten a member"
            taken = self.link.take_assignment()
            if taken is not None:
                if self.assignments[-1:] != [frozenset(taken)]:
                    self.assignments.append(frozenset(taken))
                self.link.reconciled(taken)
            self.link.polled(self._subscription)

    @property
    def is_settled(self) -> bool:
        return bool(self.assignments) and not self.link.needs_poll


class Group:
    """A group of some members. The first member commits the offsets 0, 1, 2 ... for ever."""

    protocol = "classic"
    make_member: type[PollingMember] | type[ConsumerMember] = PollingMember

    def __init__(self, bootstrap: str, group_id: str, topic: str, member_count: int, interval_s: float) -> None:
        self.group_id = group_id
        self.commits = CommitLog()
        self._client = KlammClient(ClientConfig.parse({"bootstrap_servers": bootstrap}))
        config = ConsumerConfig.parse(
            {"bootstrap_servers": bootstrap, "group_id": group_id, "group_protocol": self.protocol}
        )
        self.members = [self.make_member(self._client, config, topic) for _ in range(member_count)]
        self._partition = TopicPartition(topic, 0)
        self._store = OffsetStore(self._client, group_id)
        self._interval_s = interval_s
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def owner(self) -> int:
        """The id of the group's coordinator that the client knows. -1 if it knows none."""
        node = self._client.coordinator_node(self.group_id)
        return -1 if node is None else node.node_id

    def start(self) -> None:
        self._tasks = [asyncio.create_task(member.run()) for member in self.members]

    async def wait_settled(self) -> None:
        """Waits until all members are in one generation."""
        while not self._is_settled():
            self.check_alive()
            await asyncio.sleep(0.05)

    def _is_settled(self) -> bool:
        generations = {member.link.identity.generation_id for member in self.members}
        return len(generations) == 1 and all(member.is_settled for member in self.members)

    def start_commits(self) -> None:
        self._tasks.append(asyncio.create_task(self._commit_for_ever()))

    def check_alive(self) -> None:
        """Raises the exception with which a member or the committer ended."""
        for task in self._tasks:
            if task.done():
                task.result()

    def history(self) -> list[tuple[Identity, list[Any]]]:
        """Returns each member's identity, and all assignments that it has ever had."""
        return [(member.link.identity, list(member.assignments)) for member in self.members]

    def heartbeat_counts(self) -> list[int]:
        """Returns the number of heartbeats that each member sent."""
        return [member.link.heartbeats_total for member in self.members]

    async def stored_offset(self) -> int:
        found = await self._store.fetch([self._partition], timeout_ms=60_000)
        return found[self._partition].offset

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for member in self.members:
            await member.link.close()
        await self._client.close()

    async def _commit_for_ever(self) -> None:
        while True:
            started_s = time.perf_counter()
            offset = OffsetAndMetadata(self.commits.offset + 1)
            await self._store.commit({self._partition: offset}, self.members[0].link.commit_identity, timeout_ms=60_000)
            self.commits.offset += 1
            self.commits.acknowledged_s.append(time.perf_counter())
            await asyncio.sleep(max(0.0, self._interval_s - (time.perf_counter() - started_s)))


class ConsumerGroup(Group):
    """A group of the new protocol (KIP-848). Its coordinator assigns the `PARTITION_COUNT` partitions of the topic."""

    PARTITION_COUNT = 4
    protocol = "consumer"
    make_member = ConsumerMember

    def _is_settled(self) -> bool:
        # Members with the same epoch may still wait for partitions that others are about to revoke.
        if not super()._is_settled():
            return False
        return sum(len(member.assignments[-1]) for member in self.members) == self.PARTITION_COUNT
