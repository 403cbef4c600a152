"""A coordinator's work: the shards that it owns, the calls about them, and what both need of other servers.

Made when there are shards in the cluster, or the first call comes (server.py).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

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
from klamm_coordinator.rpc.calls import Calls
from klamm_coordinator.rpc.consumer_groups import ConsumerGroupsRpc
from klamm_coordinator.rpc.groups import GroupsRpc
from klamm_coordinator.rpc.ledgers import LedgersRpc
from klamm_coordinator.rpc.offsets import OffsetsRpc
from klamm_coordinator.rpc.transactions import TransactionsRpc
from klamm_coordinator.rpc.txn_offsets import TxnOffsetsRpc
from klamm_coordinator.shard.events import TopicsDeleted
from klamm_coordinator.shard_metrics import watch_groups, watch_transactions
from klamm_coordinator.shards import Shards, loaded
from klamm_coordinator.transaction.producer_ids import ProducerIdStock
from klamm_coordinator.transaction_host import TransactionHost
from klamm_server.clock import Clock
from klamm_server.controllers import Controllers
from klamm_server.coordinator_channels import CoordinatorChannels
from klamm_server.metadata.image import MetadataImage, ShardImage, changed_topics
from klamm_server.producer_ids import ProducerIds

LOADS_AT_ONCE = 8
"""Of one coordinator: so many times `offsets.load.buffer.size` it takes to load, however many shards it is given."""


class Work:
    """`on_image` for each image after the one that is the newest when this is made, in order; at the end `close`, and
    then, when nobody calls any more, `close_channels`. `epoch` is that of the newest registration."""

    def __init__(
        self,
        config: CoordinatorConfig,
        controllers: Controllers,
        image: Callable[[], MetadataImage],
        *,
        epoch: Callable[[], int],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._config = config
        self._epoch = epoch
        self._clock = clock
        self._rng = rng
        self._load_slots = asyncio.Semaphore(LOADS_AT_ONCE)
        self.group_shards = Shards(OFFSETS.name, config.node_id, epoch, self._open_group_shard)
        self._channels = BrokerChannels(image)
        self._coordinators = CoordinatorChannels(image)
        registry = TxnRegistry(self._coordinators, image)
        self._markers = MarkerSender(PartitionHolders(self._channels, self._coordinators, image), self._rng)
        self._stock = ProducerIdStock()
        self._supply = ProducerIdSupply(self._stock, self._make_producer_ids(controllers), self._rng)
        self.transaction_shards = Shards(TRANSACTIONS.name, config.node_id, epoch, self._open_transaction_shard)
        self._topics = TopicCatalog(MetadataImage.empty())
        self.calls = Calls(
            GroupsRpc(self.group_shards, config.groups),
            ConsumerGroupsRpc(self.group_shards, lambda: self._topics, config.groups, config.node_id),
            OffsetsRpc(self.group_shards, image),
            GroupAdminRpc(self.group_shards, config.node_id),
            TxnOffsetsRpc(self.group_shards, registry, image),
            TransactionsRpc(
                self.transaction_shards,
                image,
                self._supply.wait,
                settings=config.transactions,
                clock=self._clock,
            ),
            LedgersRpc(self.transaction_shards),
        )
        self._supply.top_up()
        self._watch_gauges()
        self.on_image(MetadataImage.empty(), image())

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Opens and closes shards, and tells them of topics that are no more."""
        delta = changed_topics(old, new)
        self._topics = self._topics.after(new, delta)
        self.group_shards.on_image(new)
        self.transaction_shards.on_image(new)
        self._channels.on_image(new)
        self._coordinators.on_image(new)
        deleted = frozenset(topic.name for topic in delta.deleted)
        if deleted:
            for host in self.group_shards:
                host.step(TopicsDeleted(topics=deleted))

    async def close(self) -> None:
        """Lets every shard go; calls are answered NOT_COORDINATOR from now on."""
        await asyncio.gather(self.group_shards.close(), self.transaction_shards.close())
        await self._markers.close()
        await self._supply.close()

    async def close_channels(self) -> None:
        """Ends the calls to others."""
        await self._channels.close()
        await self._coordinators.close()

    def _watch_gauges(self) -> None:
        watch_gauges(
            shards=lambda: len(loaded(self.group_shards)) + len(loaded(self.transaction_shards)),
            transactional_ids=lambda: sum(len(shard.values) for shard in loaded(self.transaction_shards)),
            open_transactions=lambda: sum(shard.open_count for shard in loaded(self.transaction_shards)),
            prepared_transactions=lambda: sum(shard.prepared_count for shard in loaded(self.transaction_shards)),
            untold_transactions=lambda: self._markers.pending_count,
            pending_writes=lambda: (
                sum(shard.pending_write_count for shard in loaded(self.group_shards))
                + sum(shard.pending_write_count for shard in loaded(self.transaction_shards))
            ),
        )
        watch_groups(lambda: loaded(self.group_shards))
        watch_transactions(lambda: loaded(self.transaction_shards), self._clock.wall_ms)

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

    def _make_producer_ids(self, controllers: Controllers) -> ProducerIds:
        return ProducerIds(
            controllers,
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
