"""Tells coordinators when the logs that this broker leads begin later, so that they count what groups lost.

The coordinators also ask for the starts of logs every few seconds. But a consumer whose records were deleted
continues elsewhere and commits at once. After that, nobody could see the loss any more. So the leader tells it at once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from klamm.errors import KlammError
from klamm.model import GROUP_METADATA_TOPIC, INTERNAL_TOPICS, TopicPartition
from klamm.rpc.transport import Transport
from klamm.wire.v1.coordinator_pb2 import LogStart, TellLogStartsRequest
from klamm.wire.v1.coordinator_rpc import CoordinatorStub
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.net.listeners import Listener
from klamm_server.rpc.coordinator_channels import CoordinatorChannels

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 5_000
PAUSE_S: Final = 0.1
"""The pause between two calls, so that clients that delete records again and again cost little."""
PARTITIONS_PER_CALL: Final = 1_000


class LogStartTeller:
    """Tells the coordinators. `note` may be called at any time. `run` tells until it is cancelled."""

    def __init__(self, replicas: ReplicaManager, transport: Transport, own: Listener) -> None:
        self._replicas = replicas
        self._channels = CoordinatorChannels(transport, lambda: replicas.image, own)
        self._untold: dict[TopicPartition, None] = {}
        self._has_untold = asyncio.Event()

    def note(self, topic_partition: TopicPartition) -> None:
        """Notes that a log begins later now."""
        if topic_partition.topic not in INTERNAL_TOPICS:
            self._untold[topic_partition] = None
            self._has_untold.set()

    def on_image(self) -> None:
        """Called after newer metadata were applied."""
        self._channels.on_image(self._replicas.image)

    async def run(self) -> None:
        """Tells the starts of logs until it is cancelled."""
        while True:
            await self._has_untold.wait()
            self._has_untold.clear()
            noted, self._untold = list(self._untold), {}
            starts = [start for topic_partition in noted if (start := self._start_of(topic_partition)) is not None]
            for first in range(0, len(starts), PARTITIONS_PER_CALL):
                await self._send(TellLogStartsRequest(partitions=starts[first : first + PARTITIONS_PER_CALL]))
            await asyncio.sleep(PAUSE_S)

    def _start_of(self, topic_partition: TopicPartition) -> LogStart | None:
        partition = self._replicas.get(topic_partition)
        if partition is None or not partition.is_leader:
            return None
        return LogStart(
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            log_start_offset=partition.log.log_start_offset,
        )

    async def _send(self, request: TellLogStartsRequest) -> None:
        image = self._replicas.image
        if image.topic(GROUP_METADATA_TOPIC) is None:
            return  # there is no group
        await asyncio.gather(
            *(_send_to(self._channels.to(live_coordinator), request) for live_coordinator in image.live_coordinators())
        )

    async def close(self) -> None:
        """Ends the calls under way."""
        await self._channels.close()


async def _send_to(coordinator: CoordinatorStub, request: TellLogStartsRequest) -> None:
    try:
        await coordinator.tell_log_starts(request, timeout_ms=TIMEOUT_MS)
    except KlammError as error:
        log.info("could not tell a coordinator the starts of %d logs reason=%s", len(request.partitions), error)
