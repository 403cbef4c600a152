"""The coordinator's composition root: makes the parts, joins them, starts and stops them in order.

open    nothing: all of its state is in `__consumer_offsets`
start   follows the metadata, registers, sends heartbeats until unfenced; shards are opened as they are assigned
stop    has its shards moved to another coordinator, lets them go
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine
from typing import Any

from klamm.wire.service import COORDINATOR
from klamm.wire.v1.controller_pb2 import AllocateProducerIdsRequest
from klamm_coordinator.config import CoordinatorConfig
from klamm_coordinator.group_host import GroupHost
from klamm_coordinator.io.broker_channels import BrokerChannels
from klamm_coordinator.io.log_link import LogLink
from klamm_coordinator.io.marker_sender import MarkerSender
from klamm_coordinator.io.partition_holders import PartitionHolders
from klamm_coordinator.io.producer_id_supply import ProducerIdSupply
from klamm_coordinator.io.shard_topics import OFFSETS, TRANSACTIONS, ShardTopic
from klamm_coordinator.io.topic_catalog import TopicCatalog
from klamm_coordinator.io.txn_registry import TxnRegistry
from klamm_coordinator.metrics import watch_gauges
from klamm_coordinator.rpc.admin import GroupAdminRpc
from klamm_coordinator.rpc.consumer_groups import ConsumerGroupsRpc
from klamm_coordinator.rpc.groups import GroupsRpc
from klamm_coordinator.rpc.ledgers import LedgersRpc
from klamm_coordinator.rpc.offsets import OffsetsRpc
from klamm_coordinator.rpc.servicer import CoordinatorServicer
from klamm_coordinator.rpc.transactions import TransactionsRpc
from klamm_coordinator.rpc.txn_offsets import TxnOffsetsRpc
from klamm_coordinator.shard.events import TopicsDeleted
from klamm_coordinator.shards import Shards, loaded
from klamm_coordinator.transaction.producer_ids import ProducerIdStock
from klamm_coordinator.transaction_host import TransactionHost
from klamm_server.clock import Clock, SystemClock
from klamm_server.controllers import Controllers
from klamm_server.coordinator_channels import CoordinatorChannels
from klamm_server.faults import watch
from klamm_server.metadata.image import MetadataImage, ShardImage, changed_topics
from klamm_server.metadata_link import MetadataLink
from klamm_server.producer_ids import ProducerIds
from klamm_server.registration import NOT_REGISTERED, REQUESTS_PER_SESSION, CoordinatorMember, Registration
from klamm_server.rpc_server import RpcServer

log = logging.getLogger(__name__)

LOADS_AT_ONCE = 8
"""Of one coordinator: so many times `offsets.load.buffer.size` it takes to load, however many shards it is given."""


class CoordinatorServer:
    """One coordinator process, or the coordinator's part of an embedded cluster. `register` comes before `start`."""

    def __init__(
        self, config: CoordinatorConfig, *, clock: Clock | None = None, rng: random.Random | None = None
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._rng = rng or random.SystemRandom()
        self._tasks: list[asyncio.Task[None]] = []
        self._load_slots = asyncio.Semaphore(LOADS_AT_ONCE)
        self._registration: Registration | None = None
        self._group_shards = Shards(OFFSETS.name, config.node_id, self._epoch, self._open_group_shard)
        self._controllers = Controllers(config.controllers)
        self._link = MetadataLink(self._controllers, cluster_id="", on_image=self._on_image, clock=self._clock)
        self._channels = BrokerChannels(lambda: self._link.image)
        self._coordinators = CoordinatorChannels(lambda: self._link.image)
        registry = TxnRegistry(self._coordinators, lambda: self._link.image)
        self._markers = MarkerSender(
            PartitionHolders(self._channels, self._coordinators, lambda: self._link.image), self._rng
        )
        self._stock = ProducerIdStock()
        self._supply = ProducerIdSupply(self._stock, self._make_producer_ids(), self._rng)
        self._transaction_shards = Shards(TRANSACTIONS.name, config.node_id, self._epoch, self._open_transaction_shard)
        self._topics = TopicCatalog(self._link.image)
        self._servicer = CoordinatorServicer(
            GroupsRpc(self._group_shards, config.groups),
            ConsumerGroupsRpc(self._group_shards, lambda: self._topics, config.groups, config.node_id),
            OffsetsRpc(self._group_shards, lambda: self._link.image),
            GroupAdminRpc(self._group_shards, config.node_id),
            TxnOffsetsRpc(self._group_shards, registry, lambda: self._link.image),
            TransactionsRpc(
                self._transaction_shards,
                lambda: self._link.image,
                self._supply.wait,
                settings=config.transactions,
                clock=self._clock,
            ),
            LedgersRpc(self._transaction_shards),
        )

    async def open(self) -> None:
        """There is nothing to recover."""

    def register(self, rpc: RpcServer) -> None:
        """Adds the Coordinator service; it answers NOT_COORDINATOR until shards are assigned."""
        rpc.add_service(COORDINATOR, self._servicer)

    async def start(self, host: str, port: int) -> None:
        """Returns when the cluster gives it work. `host` and `port` are what clients are told to dial.

        Raises the BrokerError of a refused registration."""
        self._spawn("metadata-link", self._link.run())
        self._registration = registration = self._make_registration(host, port)
        await registration.register()
        self._spawn("registration", registration.run())
        await registration.wait_unfenced()
        self._supply.top_up()
        watch_gauges(
            shards=lambda: len(loaded(self._group_shards)) + len(loaded(self._transaction_shards)),
            groups=lambda: sum(shard.group_count for shard in loaded(self._group_shards)),
            transactional_ids=lambda: sum(len(shard.values) for shard in loaded(self._transaction_shards)),
            open_transactions=lambda: sum(shard.open_count for shard in loaded(self._transaction_shards)),
            prepared_transactions=lambda: sum(shard.prepared_count for shard in loaded(self._transaction_shards)),
            untold_transactions=lambda: self._markers.pending_count,
            pending_writes=lambda: (
                sum(shard.pending_write_count for shard in loaded(self._group_shards))
                + sum(shard.pending_write_count for shard in loaded(self._transaction_shards))
            ),
        )
        log.info("coordinator=%d serving host=%s port=%d", self._config.node_id, host, port)

    async def wait_serving(self, wanted: bool) -> None:
        assert self._registration is not None, "the coordinator has not started"
        await self._registration.wait_serving(wanted)

    async def stop(self) -> None:
        """Also after a `start` that failed."""
        if self._epoch() != NOT_REGISTERED and self._config.controlled_shutdown_enable:
            assert self._registration is not None
            await self._registration.shut_down(self._config.broker_session_timeout_ms)
        await asyncio.gather(self._group_shards.close(), self._transaction_shards.close())
        await self._markers.close()
        await self._supply.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._channels.close()
        await self._coordinators.close()

    async def _on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        delta = changed_topics(old, new)
        self._topics = self._topics.after(new, delta)
        self._group_shards.on_image(new)
        self._transaction_shards.on_image(new)
        self._channels.on_image(new)
        self._coordinators.on_image(new)
        deleted = frozenset(topic.name for topic in delta.deleted)
        if deleted:
            for host in self._group_shards:
                host.step(TopicsDeleted(topics=deleted))

    def _epoch(self) -> int:
        return NOT_REGISTERED if self._registration is None else self._registration.epoch

    def _make_registration(self, host: str, port: int) -> Registration:
        config = self._config
        member = CoordinatorMember(
            coordinator_id=config.node_id, incarnation_id=self._rng.randbytes(16), host=host, port=port
        )
        return Registration(
            member,
            self._controllers,
            link=self._link,
            cluster_id="",
            clock=self._clock,
            heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
            request_timeout_ms=config.broker_session_timeout_ms // REQUESTS_PER_SESSION,
            registration_timeout_ms=config.initial_broker_registration_timeout_ms,
        )

    def _open_group_shard(self, number: int, writer: ShardImage) -> GroupHost:
        link = self._open_log(OFFSETS, number, writer)
        return GroupHost(number, link, settings=self._config.groups, clock=self._clock, rng=self._rng)

    def _open_transaction_shard(self, number: int, writer: ShardImage) -> TransactionHost:
        return TransactionHost(
            number,
            self._open_log(TRANSACTIONS, number, writer),
            settings=self._config.transactions,
            stock=self._stock,
            supply=self._supply,
            markers=self._markers,
            clock=self._clock,
            rng=self._rng,
        )

    def _make_producer_ids(self) -> ProducerIds:
        return ProducerIds(
            self._controllers,
            lambda: AllocateProducerIdsRequest(coordinator_id=self._config.node_id, coordinator_epoch=self._epoch()),
            timeout_ms=self._config.broker_session_timeout_ms,
        )

    def _open_log(self, topic: ShardTopic, number: int, writer: ShardImage) -> LogLink:
        config = self._config
        is_of_groups = topic is OFFSETS
        return LogLink(
            topic,
            number,
            writer,
            self._channels,
            clock=self._clock,
            rng=self._rng,
            append_max_bytes=config.coordinator_append_max_bytes,
            load_buffer_bytes=(
                config.offsets_load_buffer_size if is_of_groups else config.transaction_state_log_load_buffer_size
            ),
            load_slots=self._load_slots,
        )

    def _spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(watch(asyncio.create_task(coroutine, name=f"coordinator-{name}")))
