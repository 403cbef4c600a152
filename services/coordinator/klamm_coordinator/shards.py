"""The shards this coordinator owns, as the metadata image says.

A shard is opened when an image assigns it to this registration of this coordinator, closed when a later one does not,
and opened anew when its writer epoch changed: then somebody else may have owned it in between. An assignment to an
earlier process with this coordinator's id does not count: its writer epoch is used up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import GROUP_METADATA_TOPIC, coordinator_shard
from klamm_coordinator.shard.events import TopicsDeleted
from klamm_coordinator.shard.shard import Shard
from klamm_coordinator.shard_host import ShardHost
from klamm_server.faults import watch
from klamm_server.metadata.image import MetadataImage, ShardImage, changed_topics

log = logging.getLogger(__name__)

OpenShard = Callable[[int, ShardImage], ShardHost]


class Shards:
    """`on_image` for each image, in order; `close` at the end. `epoch` is that of the newest registration."""

    def __init__(self, coordinator_id: int, epoch: Callable[[], int], open_shard: OpenShard) -> None:
        self._coordinator_id = coordinator_id
        self._epoch = epoch
        self._open_shard = open_shard
        self._hosts: dict[int, tuple[ShardImage, ShardHost]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._shard_count = 0
        self._is_closed = False

    def __iter__(self) -> Iterator[ShardHost]:
        """Those owned, by number."""
        return iter([host for _, (_, host) in sorted(self._hosts.items())])

    def loaded(self) -> list[Shard]:
        """Those that are served. Safe to call from another thread."""
        return [shard for host in self if (shard := host.loaded_shard) is not None]

    def of_group(self, group_id: str) -> ShardHost:
        """The shard of a group. Raises NotCoordinatorError when it is not owned here."""
        if self._shard_count:
            owned = self._hosts.get(coordinator_shard(group_id, self._shard_count))
            if owned is not None:
                return owned[1]
        raise EXCEPTIONS[ErrorCode.NOT_COORDINATOR]()

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Opens and closes shards; tells those that stay of topics that are gone."""
        topic = new.topic(GROUP_METADATA_TOPIC)
        self._shard_count = 0 if topic is None else len(topic.partitions)
        assigned = self._assigned(new)
        for number in [number for number, (writer, _) in self._hosts.items() if assigned.get(number) != writer]:
            self._close(self._hosts.pop(number)[1])
        for number in sorted(assigned.keys() - self._hosts.keys()):
            self._hosts[number] = (assigned[number], self._open_shard(number, assigned[number]))
        deleted = frozenset(topic.name for topic in changed_topics(old, new).deleted)
        if deleted:
            for host in self:
                host.step(TopicsDeleted(topics=deleted))

    async def close(self) -> None:
        """Lets every shard go."""
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
            if topic == GROUP_METADATA_TOPIC and writer.coordinator_id == self._coordinator_id
        }

    def _close(self, host: ShardHost) -> None:
        task = watch(asyncio.create_task(host.close(), name=f"close-shard-{host.number}"))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
