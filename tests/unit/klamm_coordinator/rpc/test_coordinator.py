"""Tests which shards the running coordinator opens. Another kind of shard needs one line of wiring."""

from __future__ import annotations

import asyncio
import random

from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.metadata_pb2 import (
    CoordinatorChangeRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterCoordinatorRecord,
    ShardAssignmentRecord,
    TopicRecord,
)
from klamm_coordinator.config import CoordinatorConfig
from klamm_coordinator.rpc.coordinator import Coordinator
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from klamm_server.rpc.controllers import Controllers
from klamm_server.runtime.clock import SystemClock
from tests.support.counter_shard import COUNTERS, Add, CounterRules, Total
from tests.support.fake_offsets_log import FakeOffsetsLog
from tests.support.memory_transport import MemoryTransport
from tests.support.waiting import until


class FakeChannels(FakeOffsetsLog):
    """Channels whose only log serves every leader."""

    def on_image(self, image: MetadataImage) -> None:
        pass


def image_of_counters() -> MetadataImage:
    """Returns an image in which coordinator 1 owns the only shard of counters."""
    topic_id = bytes(range(16))
    records = [
        MetadataRecord(
            register_coordinator=RegisterCoordinatorRecord(
                coordinator_id=1,
                incarnation_id=bytes(16),
                coordinator_epoch=0,
                endpoint=Endpoint(host="h", port=1),
                fenced=True,
            )
        ),
        MetadataRecord(coordinator_change=CoordinatorChangeRecord(coordinator_id=1, coordinator_epoch=0, fenced=False)),
        MetadataRecord(topic=TopicRecord(name=COUNTERS.name, topic_id=topic_id)),
        MetadataRecord(
            partition=PartitionRecord(
                topic_id=topic_id, partition=0, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0
            )
        ),
        MetadataRecord(
            shard_assignment=ShardAssignmentRecord(
                topic=COUNTERS.name, shard=0, coordinator_id=1, producer_id=5, writer_epoch=0
            )
        ),
    ]
    return replay(MetadataImage.empty(), records, len(records))


def test_a_third_kind_of_shard_is_added_with_one_call():
    async def scenario() -> None:
        empty, image = MetadataImage.empty(), image_of_counters()
        coordinator = Coordinator(
            CoordinatorConfig(node_id=1),
            MemoryTransport(),
            Controllers([("localhost", 1)]),
            lambda: empty,
            epoch=lambda: 0,
            clock=SystemClock(),
            rng=random.Random(1),
        )
        coordinator._channels = FakeChannels()

        counters = coordinator.add_kind(COUNTERS, CounterRules, load_buffer_bytes=1_000_000)

        coordinator.on_image(empty, image)
        host = counters.of_key("a")
        await until(lambda: host.is_loaded)
        assert await host.ask(lambda reply_id: Add(reply_id=reply_id, name="a", amount=7)) == Total(total=7)
        assert host.rules.totals == {"a": 7}
        await coordinator.close()
        assert not host.is_loaded
        await coordinator.close_channels()

    asyncio.run(scenario())
