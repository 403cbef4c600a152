"""The state log, its owners, partitions and producers, and the faults that strike them."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

from klamm_coordinator.transaction.metadata import EPOCH_LAST, TransactionMetadata
from klamm_coordinator.transaction.records import TransactionRecord
from klamm_coordinator.transaction.states import TxnState
from klamm_coordinator.transaction_shard.records import encode_shard_record
from tests.sim.kit.cluster import SimCluster
from tests.sim.kit.world import MS, World
from tests.sim.txnsim.checks import Checks
from tests.sim.txnsim.coordinator import Owner
from tests.sim.txnsim.network import Network
from tests.sim.txnsim.options import Options
from tests.sim.txnsim.partition import Partition
from tests.sim.txnsim.producer import ProducerInstance
from tests.sim.txnsim.state_log import StateLog

IDS_PER_BLOCK = 1_000


class Cluster(SimCluster):
    """The servers, clients and faults of one seed."""

    def __init__(self, world: World, options: Options, trace: deque[str] | None) -> None:
        super().__init__(world, trace)
        self.options = options
        self.network = Network(world, options)
        self.checks = Checks(self)
        self.log = StateLog()
        self.partitions = [Partition(self, number) for number in range(options.partition_count)]
        self.ids = [f"id-{number}" for number in range(options.id_count)]
        self.producers: dict[str, list[ProducerInstance]] = {one: [] for one in self.ids}
        self._values = itertools.count()
        self._blocks = itertools.count(IDS_PER_BLOCK, IDS_PER_BLOCK)
        self._owners: list[Owner] = []
        self._known = 0
        """The owner that clients and brokers know."""

    def begin(self) -> None:
        """Owners and producers start, and faults begin to come."""
        self._use_up_epochs()
        self._fail_over()
        for transactional_id in self.ids:
            self._start_producer(transactional_id)
        options = self.options
        self.repeat(options.failover_mean_ms, self._fail_over)
        self.repeat(options.isolation_mean_ms, self._isolate)
        self.repeat(options.rival_mean_ms, lambda: self._start_producer(self.world.rng.choice(self.ids)))
        self.repeat(options.producer_crash_mean_ms, self._crash_producer)
        self.repeat(options.producer_pause_mean_ms, self._pause_producer)
        self.repeat(options.broker_restart_mean_ms, lambda: self.world.rng.choice(self.partitions).restart())
        self._watch_producers()

    def heal(self) -> None:
        """Ends all faults. Messages that are late still arrive."""
        self.is_faulty = self.network.is_faulty = False
        for owner in self._owners:
            owner.is_isolated = False

    def stop_producers(self) -> None:
        """Crashes all producers. They are not started again."""
        self.ids = []
        for instances in self.producers.values():
            for instance in instances:
                instance.crash()

    def next_value(self) -> int:
        return next(self._values)

    def next_producer_ids(self) -> range:
        first = next(self._blocks)
        return range(first, first + IDS_PER_BLOCK)

    def ask(self, request_type: Any, fields: dict[str, Any], on_reply: Callable[[Any], None]) -> None:
        """Sends a request to the known owner. The answer may never arrive."""
        self.network.send(self._owners[self._known].ask, request_type, fields, on_reply)

    # Faults

    def repeat(self, mean_ms: int, action: Callable[[], None]) -> None:
        """Calls `action` now and then, until `heal`. A mean of 0 stands for never."""
        if not mean_ms:
            return

        def happen() -> None:
            if self.is_faulty:
                self.world.event_count += 1
                action()
                wait()

        def wait() -> None:
            self.world.after(int(self.world.rng.expovariate(1 / (mean_ms * MS))) + 1, happen)

        wait()

    def _fail_over(self) -> None:
        if self._owners and self.world.rng.random() < self.options.kill_probability:
            self._owners[-1].kill()
        self._owners.append(Owner(self, len(self._owners)))
        self.note(f"owner {len(self._owners) - 1} is assigned")
        delay_us = int(self.world.rng.expovariate(1 / (self.options.metadata_delay_mean_ms * MS)))
        self.world.after(delay_us, self._learn_owner, len(self._owners) - 1)

    def _learn_owner(self, number: int) -> None:
        self._known = max(self._known, number)

    def _isolate(self) -> None:
        owner = self._owners[-1]
        owner.is_isolated = True
        self.note(f"owner {owner.epoch} is isolated")

        def rejoin() -> None:
            owner.is_isolated = False

        self.world.after(self.world.rng.randint(1, 1_000) * MS, rejoin)

    def _start_producer(self, transactional_id: str) -> None:
        self.producers[transactional_id].append(ProducerInstance(self, transactional_id))

    def _crash_producer(self) -> None:
        for producer in self.producers[self.world.rng.choice(self.ids)]:
            producer.crash()

    def _pause_producer(self) -> None:
        duration_ms = self.world.rng.randint(1, 3 * self.options.transaction_timeout_ms)
        for producer in self.producers[self.world.rng.choice(self.ids)]:
            producer.paused_until_us = self.world.now_us + duration_ms * MS

    def _watch_producers(self) -> None:
        """Starts a new producer for each transactional id that has none, again and again."""
        for transactional_id in self.ids:
            instances = self.producers[transactional_id]
            instances[:] = [instance for instance in instances if instance.is_alive]
            if not instances:
                self._start_producer(transactional_id)
        self.world.after(self.world.rng.randint(10, 200) * MS, self._watch_producers)

    def _use_up_epochs(self) -> None:
        for number, transactional_id in enumerate(self.ids):
            if self.world.rng.random() < self.options.is_exhausted_probability:
                value = TransactionMetadata(
                    producer_id=number,
                    producer_epoch=EPOCH_LAST - self.world.rng.randint(1, 20),
                    timeout_ms=self.options.transaction_timeout_ms,
                    state=TxnState.EMPTY,
                    last_update_ms=0,
                )
                self.log.entries.append(encode_shard_record(TransactionRecord(transactional_id, value)))
