"""Tests the looks at all groups while shards come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any

import pytest

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.io.group_watch import GroupWatch
from klamm_coordinator.io.shard_host import ShardHost
from klamm_coordinator.io.unread_records import Position
from klamm_coordinator.lag.group_lag import Unread
from klamm_server.runtime.clock import SystemClock
from tests.support.fake_offsets_log import FakeOffsetsLog
from tests.unit.klamm_coordinator.io.test_shard_host import host_on, loaded
from tests.unit.klamm_coordinator.rpc.test_holds import commit

PARTITION = TopicPartition("t", 0)


class TwoShards:
    """Two loaded shards with the group "g"."""

    def __init__(self, hosts: Sequence[ShardHost[Any]]) -> None:
        self.hosts = hosts

    def __iter__(self) -> Iterator[ShardHost[Any]]:
        return iter(self.hosts)

    def of_key(self, key: str) -> ShardHost[Any]:
        return self.hosts[0]


class NoLeaders:
    """An asker that reaches no leader."""

    async def ask(self, positions: Iterable[Position]) -> dict[Position, Unread]:
        return {position: Unread(ErrorCode.LEADER_NOT_AVAILABLE) for position in positions}


@pytest.mark.parametrize("work", [GroupWatch.look, lambda watch: watch.on_log_starts({PARTITION: 9})])
def test_a_shard_that_is_released_during_a_look_is_left_out(
    work: Callable[[GroupWatch], Coroutine[Any, Any, None]],
) -> None:
    async def scenario() -> None:
        shards: Any = TwoShards([await loaded(host_on(FakeOffsetsLog())) for _ in range(2)])
        for host in shards:
            await commit(host, "g", 3)
        asker: Any = NoLeaders()
        looking = asyncio.ensure_future(work(GroupWatch(shards, asker, SystemClock(), interval_ms=1)))
        await asyncio.sleep(0)
        assert not looking.done()
        await shards.hosts[1].close()
        await looking
        await shards.hosts[0].close()

    asyncio.run(scenario())
