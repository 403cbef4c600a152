"""The shards of one internal topic that the metadata image assigns to this coordinator.

A shard is opened when an image assigns it to this registration of this coordinator, and closed when a later image does
not. It is opened again when its writer epoch has changed, because another coordinator may have owned it in between. An
assignment to an earlier process with this coordinator's id is ignored, because its writer epoch is used up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import coordinator_shard
from klamm.ordered_set import OrderedSet
from klamm_coordinator.io.shard_host import MakeRequest, ShardHost
from klamm_coordinator.runtime.rules import Rules
from klamm_coordinator.runtime.shard_runtime import ShardRuntime
from klamm_server.metadata.entities import ShardImage
from klamm_server.metadata.image import MetadataImage
from klamm_server.runtime.faults import watch

log = logging.getLogger(__name__)

RulesT = TypeVar("RulesT", bound=Rules)
ReplyT = TypeVar("ReplyT")


def loaded(hosts: Iterable[ShardHost[RulesT]]) -> list[ShardRuntime[RulesT]]:
    """Returns the shards that this coordinator serves. Safe to call from another thread."""
    return [shard for host in hosts if (shard := host.loaded_shard) is not None]


class Shards(Generic[RulesT]):
    """Opens and closes the shards of one topic. The caller uses `on_image` for each image, in order, and `close` at the
    end. `epoch` returns the epoch of the newest registration."""

    def __init__(
        self,
        topic: str,
        coordinator_id: int,
        epoch: Callable[[], int],
        open_shard: Callable[[int, ShardImage], ShardHost[RulesT]],
    ) -> None:
        self._topic = topic
        self._coordinator_id = coordinator_id
        self._epoch = epoch
        self._open_shard = open_shard
        self._hosts: dict[int, tuple[ShardImage, ShardHost[RulesT]]] = {}
        self._closing: OrderedSet[asyncio.Task[None]] = OrderedSet()
        self._shard_count = 0
        self._is_closed = False

    def __iter__(self) -> Iterator[ShardHost[RulesT]]:
        """Returns the owned shards, in the order of their numbers."""
        return iter([host for _, (_, host) in sorted(self._hosts.items())])

    def of_key(self, key: str) -> ShardHost[RulesT]:
        """Returns the shard of a group id or transactional id. Raises NotCoordinatorError if this coordinator does not
        own it."""
        return self.of_number(self.number_of(key))

    async def ask(self, key: str, make_request: MakeRequest, reply: type[ReplyT]) -> ReplyT:
        """Asks the shard of a group id or transactional id (`ShardHost.ask`), and returns its answer, which is a
        `reply`. Raises as `of_key` does, too."""
        answer = await self.of_key(key).ask(make_request)
        assert isinstance(answer, reply), answer
        return answer

    def number_of(self, key: str) -> int:
        """Returns the number of the shard of a group id or transactional id, or -1 while the topic does not exist."""
        return coordinator_shard(key, self._shard_count) if self._shard_count else -1

    def of_number(self, number: int) -> ShardHost[RulesT]:
        """Returns the shard with that number. Raises NotCoordinatorError if this coordinator does not own it."""
        owned = self._hosts.get(number)
        if owned is None:
            raise EXCEPTIONS[ErrorCode.NOT_COORDINATOR]()
        return owned[1]

    def on_image(self, new: MetadataImage) -> None:
        """Opens the shards that the image assigns to this coordinator, and closes the others."""
        topic = new.topic(self._topic)
        self._shard_count = 0 if topic is None else len(topic.partitions)
        assigned = self._assigned(new)
        for number in [number for number, (writer, _) in self._hosts.items() if assigned.get(number) != writer]:
            self._close(self._hosts.pop(number)[1])
        for number in sorted(assigned.keys() - self._hosts.keys()):
            self._hosts[number] = (assigned[number], self._open_shard(number, assigned[number]))

    async def close(self) -> None:
        """Releases every shard, and waits until all are closed."""
        self._is_closed = True
        for _, host in self._hosts.values():
            self._close(host)
        self._hosts.clear()
        if self._closing:
            await asyncio.wait(self._closing)

    def _assigned(self, image: MetadataImage) -> dict[int, ShardImage]:
        me = image.coordinators.get(self._coordinator_id)
        if self._is_closed or me is None or me.fenced or me.coordinator_epoch != self._epoch():
            return {}
        return {
            shard: writer
            for (topic, shard), writer in image.shards.items()
            if topic == self._topic and writer.coordinator_id == self._coordinator_id
        }

    def _close(self, host: ShardHost[RulesT]) -> None:
        task = watch(asyncio.create_task(host.close(), name=f"close-{self._topic}-{host.number}"))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
