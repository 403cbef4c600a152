"""Workers that create, read and delete topics all the time, and the history of acknowledged operations.

The history is checked by name. Each topic belongs to one worker, and is created once and deleted once. Every read after
an acknowledged creation sees the topic until its deletion is requested. No read after an acknowledged deletion sees it.
If an operation's outcome is unknown, its topic is not checked any more, because the operation may happen at any later
time. The outcome is unknown if the controller was killed, or did not answer in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import AsyncIterator

from klamm.wire.v1 import controller_pb2 as pb
from tests.support.controller_quorum import Quorum
from tests.support.quorum_client import UNKNOWN, QuorumClient
from tests.support.waiting import patience

PAUSE_S = 0.02
"""The pause of each worker between operations. It leaves the servers some CPU on two cores."""


class History:
    """The acknowledged operations, and their times."""

    def __init__(self) -> None:
        self.alive: set[str] = set()
        self.dead: set[str] = set()
        self.unknown: set[str] = set()
        self.acknowledged_s: list[float] = []
        self._acknowledged = asyncio.Event()

    def acknowledge(self) -> None:
        self.acknowledged_s.append(time.monotonic())
        self._acknowledged.set()

    async def wait_for_acknowledgement(self, since_s: float) -> None:
        """Waits until an operation is acknowledged after `since_s`. Raises TimeoutError if none is."""
        async with asyncio.timeout(patience()):
            while not self.acknowledged_s or self.acknowledged_s[-1] <= since_s:
                self._acknowledged.clear()
                await self._acknowledged.wait()

    def check(self, seen: set[str]) -> None:
        assert self.alive <= seen, f"lost: {sorted(self.alive - seen)}"
        assert not self.dead & seen, f"back from the dead: {sorted(self.dead & seen)}"

    def outage_s(self, since_s: float) -> float:
        """Returns the longest time without an acknowledgement from `since_s` on."""
        times_s = [since_s, *(at for at in self.acknowledged_s if at > since_s)]
        return max(later - before for before, later in itertools.pairwise(times_s))


async def administer(client: QuorumClient, history: History, prefix: str) -> None:
    """Creates, reads and deletes topics of its own, whose names begin with `prefix`, until it is cancelled."""
    rng = random.Random(prefix)
    mine: list[str] = []
    for number in itertools.count():
        await asyncio.sleep(PAUSE_S)
        if mine and rng.random() < 0.4:
            await _delete(client, history, mine.pop(rng.randrange(len(mine))))
            continue
        name = f"{prefix}-{number}"
        if await _create(client, history, name):
            mine.append(name)
            await _read(client, history, name)


async def _create(client: QuorumClient, history: History, name: str) -> bool:
    topic = pb.NewTopic(name=name, partition_count=1, replication_factor=1)
    history.unknown.add(name)
    response = await client.call("create_topics", pb.CreateTopicsRequest(topics=[topic], timeout_ms=900))
    if response is UNKNOWN:
        return False
    assert response.topics[0].error_code == 0, response
    history.unknown.discard(name)
    history.alive.add(name)
    history.acknowledge()
    return True


async def _delete(client: QuorumClient, history: History, name: str) -> None:
    history.alive.discard(name)
    history.unknown.add(name)
    response = await client.call("delete_topics", pb.DeleteTopicsRequest(topics=[name], timeout_ms=900))
    if response is not UNKNOWN:
        assert response.results[0].error_code == 0, response
        history.unknown.discard(name)
        history.dead.add(name)
        history.acknowledge()


async def _read(client: QuorumClient, history: History, name: str) -> None:
    response = await client.call("describe_topics", pb.DescribeTopicsRequest(topics=[name]))
    if response is not UNKNOWN:
        assert response.topics[0].error_code == 0, f"{name} was acknowledged, then not seen"


async def seen_topics(client: QuorumClient) -> set[str]:
    while (response := await client.call("describe_topics", pb.DescribeTopicsRequest())) is UNKNOWN:
        pass
    return {topic.name for topic in response.topics}


@contextlib.asynccontextmanager
async def load(quorum: Quorum, history: History, worker_count: int = 3, *, prefix: str = "w") -> AsyncIterator[None]:
    """Runs workers that administer topics during the context. At the end, checks that the active controller has
    everything that was acknowledged.

    The names of topics begin with `prefix`. Each load of the same history needs another prefix."""
    clients = [QuorumClient(quorum.addresses) for _ in range(worker_count + 1)]
    workers = [
        asyncio.create_task(administer(client, history, f"{prefix}{number}"))
        for number, client in enumerate(clients[1:])
    ]
    try:
        yield
        for worker in workers:
            assert not worker.done(), worker.exception()
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        history.check(await seen_topics(clients[0]))
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        for client in clients:
            await client.close()
