"""The controller: the real handlers on the real image. What it appends is committed at once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from raftsim.world import MS, World

from isrsim.network import CONTROLLER, Network
from isrsim.options import Options
from klamm.wire.v1.controller_pb2 import AlterPartitionRequest, BrokerHeartbeatRequest, RegisterBrokerRequest
from klamm.wire.v1.metadata_pb2 import (
    CONFIG_RESOURCE_TYPE_TOPIC,
    ClusterRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
)
from klamm_controller.metadata.alter_partition import handle_alter_partition
from klamm_controller.metadata.brokers import (
    handle_broker_heartbeat,
    handle_broker_session_end,
    handle_register_broker,
)
from klamm_controller.metadata.sessions import Sessions
from klamm_server.metadata.image import MetadataImage, PartitionImage, replay

TOPIC = "t"
TOPIC_ID = uuid.UUID(int=1)
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


class SimController:
    """`on_commit` hears of every change of the image, after it."""

    def __init__(
        self, world: World, network: Network, options: Options, on_commit: Callable[[MetadataImage], None]
    ) -> None:
        self._world = world
        self._network = network
        self._on_commit = on_commit
        self._sessions = Sessions(options.session_timeout_ms)
        self._log: list[tuple[int, Sequence[MetadataRecord]]] = []
        self.image = MetadataImage.empty()
        self._commit([MetadataRecord(cluster=ClusterRecord(cluster_id=CLUSTER_ID))])
        self._tick()

    @property
    def partition(self) -> PartitionImage | None:
        return self.image.partition(TOPIC, 0)

    def create_topic(self, replicas: Sequence[int], min_isr: int) -> None:
        """Everybody is in sync, the first leads."""
        self._commit(
            [
                MetadataRecord(topic=TopicRecord(name=TOPIC, topic_id=TOPIC_ID.bytes)),
                MetadataRecord(
                    config=ConfigRecord(
                        resource_type=CONFIG_RESOURCE_TYPE_TOPIC,
                        resource_name=TOPIC,
                        name="min.insync.replicas",
                        value=str(min_isr),
                    )
                ),
                MetadataRecord(
                    partition=PartitionRecord(
                        topic_id=TOPIC_ID.bytes, partition=0, replicas=replicas, isr=replicas, leader=replicas[0]
                    )
                ),
            ]
        )

    def _commit(self, records: Sequence[MetadataRecord]) -> None:
        if records:
            self._log.append((self.image.end_index, records))
            self.image = replay(self.image, records, self.image.end_index + len(records))
            self._on_commit(self.image)

    # Requests; `answer` is called over the network

    def register(self, request: RegisterBrokerRequest, answer: Callable[..., None]) -> None:
        # A broker's directories are locked, so another life of it proves that the one before is over.
        decision = handle_register_broker(request, self.image, session_live=False)
        assert not decision.reply.error_code, decision.reply
        self._sessions.touch(request.broker_id, self._now_ms)
        self._commit(decision.records)
        self._reply(request.broker_id, answer, decision.reply)

    def heartbeat(self, request: BrokerHeartbeatRequest, answer: Callable[..., None]) -> None:
        decision = handle_broker_heartbeat(request, self.image)
        if decision.reply.should_shutdown:
            self._sessions.remove(request.broker_id)
        elif not decision.reply.error_code:
            self._sessions.touch(request.broker_id, self._now_ms)
        self._commit(decision.records)
        self._reply(request.broker_id, answer, decision.reply)

    def alter_partition(self, request: AlterPartitionRequest, answer: Callable[..., None]) -> None:
        decision = handle_alter_partition(request, self.image)
        self._commit(decision.records)
        self._reply(request.broker_id, answer, decision.reply)

    def watch(self, broker_id: int, start_index: int, deliver: Callable[..., None]) -> None:
        """Sends what a broker lacks, in one piece."""
        records = [record for base, batch in self._log if base >= start_index for record in batch]
        if records:
            self._reply(broker_id, deliver, start_index, records)

    def _reply(self, broker_id: int, answer: Callable[..., None], *args: Any) -> None:
        self._network.send(CONTROLLER, broker_id, answer, *args)

    # Sessions

    @property
    def _now_ms(self) -> int:
        return self._world.now_us // MS

    def _tick(self) -> None:
        for broker_id in self._sessions.expire(self._now_ms):
            self._commit(handle_broker_session_end(broker_id, self.image).records)
        self._world.after(10 * MS, self._tick)
