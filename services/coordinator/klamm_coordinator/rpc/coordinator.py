"""A running coordinator: the shards that it owns, the calls about them, and the links to other servers that both need.

The server makes it when the cluster has shards, or when the first call arrives (server.py).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, TypeVar

from klamm.rpc.transport import Transport
from klamm.wire.v1.controller_pb2 import AllocateProducerIdsRequest
from klamm_coordinator.config import CoordinatorConfig
from klamm_coordinator.group_shard.events import HoldsChanged, TopicsDeleted
from klamm_coordinator.group_shard.rules import GroupRules
from klamm_coordinator.group_shard.shard_topic import OFFSETS
from klamm_coordinator.io.group_watch import GroupWatch
from klamm_coordinator.io.log_link import LogLink
from klamm_coordinator.io.log_starts import LogStarts
from klamm_coordinator.io.marker_destinations import MarkerDestinations
from klamm_coordinator.io.marker_orders import MarkerOrders
from klamm_coordinator.io.marker_sender import MarkerSender
from klamm_coordinator.io.metrics import GROUP_REFUSALS, TRANSACTION_REFUSALS, watch_gauges
from klamm_coordinator.io.producer_id_refill import ProducerIdRefill
from klamm_coordinator.io.shard_host import OrderCarrier, ShardHost
from klamm_coordinator.io.shard_metrics import watch_groups, watch_transactions
from klamm_coordinator.io.shards import Shards, loaded
from klamm_coordinator.io.topic_catalog import TopicCatalog
from klamm_coordinator.io.txn_registry import TxnRegistry
from klamm_coordinator.io.unread_records import UnreadAsker
from klamm_coordinator.io.write_memory import WriteMemory
from klamm_coordinator.rpc.admin import GroupAdminRpc
from klamm_coordinator.rpc.calls import Calls
from klamm_coordinator.rpc.classic_groups import ClassicGroupsRpc
from klamm_coordinator.rpc.consumer_groups import ConsumerGroupsRpc
from klamm_coordinator.rpc.holds import HoldsRpc
from klamm_coordinator.rpc.lag import LagRpc
from klamm_coordinator.rpc.ledgers import LedgersRpc
from klamm_coordinator.rpc.offsets import OffsetsRpc
from klamm_coordinator.rpc.transactions import TransactionsRpc
from klamm_coordinator.rpc.txn_offsets import TxnOffsetsRpc
from klamm_coordinator.runtime.rules import Rules
from klamm_coordinator.runtime.shard_runtime import ShardRuntime
from klamm_coordinator.runtime.shard_topic import ShardTopic
from klamm_coordinator.transaction.producer_ids import ProducerIdPool
from klamm_coordinator.transaction_shard.rules import TransactionRules
from klamm_coordinator.transaction_shard.shard_topic import TRANSACTIONS
from klamm_server.links.producer_ids import ProducerIds
from klamm_server.metadata.entities import ShardImage
from klamm_server.metadata.image import MetadataImage, changed_topics
from klamm_server.rpc.broker_channels import BrokerChannels
from klamm_server.rpc.controllers import Controllers
from klamm_server.rpc.coordinator_channels import CoordinatorChannels
from klamm_server.runtime.byte_shares import ByteShares
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.faults import watch
from klamm_server.runtime.usable_memory import usable_memory_bytes

RulesT = TypeVar("RulesT", bound=Rules)
LOADS_AT_ONCE = 8
"""How many shards a coordinator loads at once. So loading takes at most this many buffers of
`offsets.load.buffer.size`, however many shards the coordinator is given."""
GROUPS_PART = 4
"""The groups may take this part of the memory that the process may use, unless group.metadata.max.bytes is set."""
WRITES_PART = 16
"""The same for writes that wait, unless coordinator.pending.writes.max.bytes is set."""
TRANSACTIONS_PART = 8
"""The same for transactional ids, unless transactional.id.metadata.max.bytes is set."""


class Coordinator:
    """The shards of this coordinator, and the calls to them.

    The server calls `on_image` for each image after the newest one at construction, in order. At the end it calls
    `close`, and when no calls are left, `close_channels`. `epoch` is the epoch of the newest registration."""

    def __init__(
        self,
        config: CoordinatorConfig,
        transport: Transport,
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
        self._write_memory = WriteMemory(
            config.coordinator_pending_writes_max_bytes or usable_memory_bytes() // WRITES_PART
        )
        own = config.resolved_listeners().between_servers
        self._channels = BrokerChannels(transport, image, own)
        self._coordinators = CoordinatorChannels(transport, image, own)
        registry = TxnRegistry(self._coordinators, image)
        self._markers = MarkerSender(MarkerDestinations(self._channels, self._coordinators, image), self._rng)
        self._pool = ProducerIdPool()
        self._supply = ProducerIdRefill(self._pool, self._make_producer_ids(transport, controllers), self._rng)
        self._kinds: list[Shards[Any]] = []
        self._group_shares = ByteShares(
            config.group_metadata_max_bytes or usable_memory_bytes() // GROUPS_PART, "group.metadata.max.bytes"
        )
        self._transaction_shares = ByteShares(
            config.transactional_id_metadata_max_bytes or usable_memory_bytes() // TRANSACTIONS_PART,
            "transactional.id.metadata.max.bytes",
        )
        self.group_shards = self.add_kind(
            OFFSETS,
            lambda: GroupRules(config, self._group_shares, lambda: self._topics),
            config.offsets_load_buffer_size,
        )
        self.transaction_shards = self.add_kind(
            TRANSACTIONS,
            lambda: TransactionRules(config, self._pool, self._transaction_shares),
            config.transaction_state_log_load_buffer_size,
            MarkerOrders(self._markers, self._supply),
        )
        self._topics = TopicCatalog(MetadataImage.empty())
        asker = UnreadAsker(self._channels)
        self._group_watch = GroupWatch(self.group_shards, asker, clock, interval_ms=config.lag_interval_ms)
        self._watching = watch(asyncio.create_task(self._group_watch.run(), name="group-watch"))
        self.calls = Calls(
            groups=ClassicGroupsRpc(self.group_shards, lambda: self._topics, config),
            consumer_groups=ConsumerGroupsRpc(self.group_shards, lambda: self._topics, config, config.node_id),
            offsets=OffsetsRpc(self.group_shards, image, LogStarts(self._channels)),
            holds=HoldsRpc(self.group_shards),
            admin=GroupAdminRpc(self.group_shards, config.node_id),
            lag=LagRpc(self.group_shards, self._group_watch, asker, lambda: self._topics, clock),
            txn_offsets=TxnOffsetsRpc(self.group_shards, registry, image),
            transactions=TransactionsRpc(
                self.transaction_shards,
                image,
                self._supply.wait,
                settings=config,
                clock=self._clock,
            ),
            ledgers=LedgersRpc(self.transaction_shards),
        )
        self._supply.top_up()
        self._watch_gauges()
        self.on_image(MetadataImage.empty(), image())

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Opens and closes shards, and tells the shards of groups which topics were deleted, and that topics name other
        groups in `retention.hold.groups`."""
        delta = changed_topics(old, new)
        former, self._topics = self._topics, self._topics.after(new, delta)
        for shards in self._kinds:
            shards.on_image(new)
        self._channels.on_image(new)
        self._coordinators.on_image(new)
        deleted = frozenset(topic.name for topic in delta.deleted)
        if deleted:
            for host in self.group_shards:
                host.step(TopicsDeleted(topics=deleted))
        if self._topics.holds != former.holds:
            for host in self.group_shards:
                host.step(HoldsChanged())

    async def close(self) -> None:
        """Releases every shard. After this, calls are answered with NOT_COORDINATOR."""
        self._watching.cancel()
        await asyncio.wait({self._watching})
        await asyncio.gather(*(shards.close() for shards in self._kinds))
        await self._markers.close()
        await self._supply.close()

    async def close_channels(self) -> None:
        """Closes the channels to brokers and other coordinators."""
        await self._channels.close()
        await self._coordinators.close()

    def _watch_gauges(self) -> None:
        watch_gauges(
            shards=lambda: sum(len(loaded(shards)) for shards in self._kinds),
            transactional_ids=lambda: sum(len(rules.ids.values) for rules in self._transaction_rules()),
            open_transactions=lambda: sum(len(rules.ids.open) for rules in self._transaction_rules()),
            prepared_transactions=lambda: sum(rules.ids.prepared_count for rules in self._transaction_rules()),
            untold_transactions=lambda: self._markers.pending_count,
            group_metadata_bytes=lambda: self._group_shares.held_bytes,
            transactional_id_metadata_bytes=lambda: self._transaction_shares.held_bytes,
            pending_writes_bytes=lambda: self._write_memory.held_bytes,
            pending_writes=lambda: sum(shard.pending_write_count for shards in self._kinds for shard in loaded(shards)),
        )
        GROUP_REFUSALS.set_function(lambda: self._group_shares.refused_count)
        TRANSACTION_REFUSALS.set_function(lambda: self._transaction_shares.refused_count)
        watch_groups(
            lambda: [shard.rules for shard in loaded(self.group_shards)],
            self._group_watch.lags,
            self._clock.wall_ms,
        )
        watch_transactions(self._transaction_rules, self._clock.wall_ms)

    def _transaction_rules(self) -> list[TransactionRules]:
        return [shard.rules for shard in loaded(self.transaction_shards)]

    def add_kind(
        self,
        topic: ShardTopic,
        make_rules: Callable[[], RulesT],
        load_buffer_bytes: int,
        carrier: OrderCarrier | None = None,
    ) -> Shards[RulesT]:
        """Adds the shards of one topic, which `on_image` opens and closes, and returns them."""

        def open_shard(number: int, writer: ShardImage) -> ShardHost[RulesT]:
            return ShardHost(
                number,
                self._open_log(topic, number, writer, load_buffer_bytes),
                lambda: ShardRuntime(make_rules(), self._config, self._rng),
                carrier=carrier,
                clock=self._clock,
                rng=self._rng,
            )

        shards = Shards(topic.name, self._config.node_id, self._epoch, open_shard)
        self._kinds.append(shards)
        return shards

    def _make_producer_ids(self, transport: Transport, controllers: Controllers) -> ProducerIds:
        return ProducerIds(
            transport,
            controllers,
            lambda: AllocateProducerIdsRequest(coordinator_id=self._config.node_id, coordinator_epoch=self._epoch()),
            timeout_ms=self._config.broker_session_timeout_ms,
        )

    def _open_log(self, topic: ShardTopic, number: int, writer: ShardImage, load_buffer_bytes: int) -> LogLink:
        return LogLink(
            topic,
            number,
            writer,
            self._channels,
            clock=self._clock,
            rng=self._rng,
            append_max_bytes=self._config.coordinator_append_max_bytes,
            load_buffer_bytes=load_buffer_bytes,
            load_slots=self._load_slots,
            memory=self._write_memory,
        )
