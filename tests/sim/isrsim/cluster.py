"""Brokers, a controller, and the faults that strike them."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from klamm_server.metadata.image import MetadataImage
from tests.sim.isrsim.broker import Life, PendingProduce, SimBroker
from tests.sim.isrsim.checks import Checks
from tests.sim.isrsim.consumers import SimConsumer
from tests.sim.isrsim.controller import SimController
from tests.sim.isrsim.network import CONTROLLER, Network
from tests.sim.isrsim.options import Options
from tests.sim.isrsim.producers import SimProducer
from tests.sim.isrsim.sim_log import SimDisk
from tests.sim.kit.cluster import SimCluster
from tests.sim.kit.world import MS, World
from tests.support.violation import require


class Cluster(SimCluster):
    """See the module."""

    def __init__(
        self, world: World, options: Options, trace: deque[str] | None, network: Network | None = None
    ) -> None:
        super().__init__(world, trace)
        self.options = options
        self.suspects: dict[int, int] = {}
        """Brokers that stopped uncleanly and are not in sync since, with the epoch of the life that ended so."""
        self.lossy: set[int] = set()
        """The brokers among `suspects` that lost the tail of their log."""
        self._is_thin = False
        """An administrator took replicas away that may have had what others lack: no tail may be lost now."""
        self.network = network or Network(world, options)
        self.checks = Checks(self)
        self.brokers: dict[int, SimBroker] = {}
        self.controller = SimController(world, self.network, options, self._on_commit)
        self.brokers = {number: SimBroker(number, self) for number in range(1, options.broker_count + 1)}
        self.producers = [SimProducer(number, self) for number in range(options.producer_count)]
        self.consumer = SimConsumer()
        self._consumer_rng = random.Random(options.describe())  # separate, so that reading changes no other event

    # The reports of brokers

    def on_append(self, broker: SimBroker) -> None:
        self.checks.on_append(broker)

    def on_acknowledged(self, broker: SimBroker, produce: PendingProduce) -> None:
        self.checks.after_step(broker)
        self.checks.on_acknowledged(broker, produce.offset, produce.value)
        if self.world.rng.random() >= self.options.lost_acknowledgement_probability or not self.is_faulty:
            producer, sequence = produce.sequence
            self.producers[producer].on_acknowledged(sequence)

    def on_read(self, broker: SimBroker, end_offset: int) -> None:
        self.checks.after_step(broker)
        self.checks.on_read(broker, end_offset)

    def after_step(self, broker: SimBroker) -> None:
        self.checks.after_step(broker)

    def _on_commit(self, image: MetadataImage) -> None:
        partition = image.partition("t", 0)
        if partition is None:
            return
        for broker_id, epoch in tuple(self.suspects.items()):
            is_back = broker_id in partition.isr and image.brokers[broker_id].broker_epoch > epoch
            if is_back or broker_id not in partition.replicas:
                del self.suspects[broker_id]
                self.lossy.discard(broker_id)
        if len(partition.isr) >= self.options.min_isr:
            self._is_thin = False
        self.checks.on_commit(partition, image)

    def is_dead_in_secret(self, broker_id: int) -> bool:
        """True if the broker lost a tail and the controller cannot know it yet."""
        known_epoch = self.controller.image.brokers[broker_id].broker_epoch
        return broker_id in self.lossy and known_epoch == self.suspects[broker_id]

    def leads(self, broker: SimBroker) -> bool:
        """True if the broker is the leader that the controller has elected, under the epoch that the broker
        believes."""
        image, partition = self.controller.partition, broker.partition
        if image is None or partition is None:
            return False
        return (image.leader, image.leader_epoch) == (broker.broker_id, partition.leader_epoch)

    # Load

    def begin(self) -> None:
        """Starts all brokers. The topic exists when all of them are registered."""
        self.controller.run()
        for broker in self.brokers.values():
            broker.start()
        self.world.run_until(self.world.now_us + 60_000 * MS, self._all_unfenced)
        self.controller.create_topic(sorted(self.brokers)[: self.options.replica_count], self.options.min_isr)
        for producer in self.producers:
            self._repeat(self.options.produce_mean_ms, self._produce, producer)
        self._repeat(self.options.read_mean_ms, self._consume)
        for mean_ms, fault in (
            (self.options.crash_mean_ms, self._crash),
            (self.options.partition_mean_ms, self._cut),
            (self.options.pause_mean_ms, self._pause),
            (self.options.reassignment_mean_ms, self._administer),
            (self.options.controller_mean_ms, self._fail_over),
            (self.options.full_disk_mean_ms, self._fill),
        ):
            if mean_ms:
                self._repeat(mean_ms, fault)

    def _all_unfenced(self) -> bool:
        brokers = self.controller.image.brokers
        return len(brokers) == len(self.brokers) and not any(broker.fenced for broker in brokers.values())

    def _repeat(self, mean_ms: int, action: Callable[..., None], *args: object) -> None:
        def again() -> None:
            action(*args)
            self.world.after(int(self.world.rng.expovariate(1 / (mean_ms * MS))) + 1, again)

        again()

    def every(self, broker: SimBroker, life: Life, period_ms: int, action: Callable[[], None]) -> None:
        """A timer of a process."""

        def tick() -> None:
            if broker.life is life:
                broker.receive(life, action)
                self.world.after(period_ms * MS, tick)

        self.world.after(self.world.rng.randrange(period_ms * MS), tick)

    def _produce(self, producer: SimProducer) -> None:
        if self.is_faulty:
            self.produce(producer)

    def produce(self, producer: SimProducer) -> None:
        """Produces one more record."""
        producer.send(self._leaders())

    def _consume(self) -> None:
        for broker in self._leaders():
            broker.receive(None, broker.consume)
        rng, brokers = self._consumer_rng, list(self.brokers.values())
        self.consumer.learn(rng.choice(brokers))
        broker = rng.choice(brokers)
        broker.receive(None, self._poll, broker)

    def _poll(self, broker: SimBroker) -> None:
        self.consumer.poll(broker)

    def _leaders(self) -> list[SimBroker]:
        return [
            broker for broker in self.brokers.values() if broker.partition is not None and broker.partition.is_leader
        ]

    # Faults

    def heal(self) -> None:
        """No more faults, and those there are end."""
        self.is_faulty = False
        self.network.is_faulty = False
        self.network.cut.clear()
        for broker in self.brokers.values():
            broker.disk.room = None
            if broker.life is None:
                broker.start()

    def _crash(self) -> None:
        rng, options = self.world.rng, self.options
        alive = [broker for broker in self.brokers.values() if broker.life is not None and broker.life.is_up]
        if not self.is_faulty or not alive:
            return
        broker = rng.choice(alive)
        if rng.random() < options.shutdown_probability:
            broker.shut_down()
            return
        is_borne = self._is_borne(broker) and not (self._is_thin and not options.sync_mean_ms)
        self.crash(broker, is_lossy=is_borne and rng.random() < options.lossy_crash_probability)

    def _is_borne(self, broker: SimBroker) -> bool:
        """True if the broker may lose its tail. Either all that was acknowledged is synced, or another replica that was
        in sync last has everything and is remembered.

        With min.insync.replicas=1 a leader is enough, and no other replica is remembered."""
        if self.options.sync_mean_ms:
            return True
        partition = self.controller.partition
        if partition is None or self.options.min_isr == 1:
            return False
        had_everything = {*partition.isr, *partition.elr, *partition.last_known_elr}
        return bool(had_everything - self.lossy - {broker.broker_id})

    def crash(self, broker: SimBroker, *, is_lossy: bool, kept_count: int | None = None) -> None:
        """kill -9, or a power failure that may lose what is not flushed."""
        self.suspects[broker.broker_id] = broker.present.epoch
        if not is_lossy:
            broker.crash()
            return
        if not self.options.sync_mean_ms:
            self.lossy.add(broker.broker_id)
        durable_count, log_end_offset = broker.log.durable_count, broker.log.log_end_offset
        require(durable_count <= log_end_offset, f"sync: {durable_count} of {log_end_offset} records are synced")
        if kept_count is None:
            kept_count = self.world.rng.randint(durable_count, log_end_offset)
        broker.crash(kept_count)

    def after_down(self, broker: SimBroker) -> None:
        """Starts the broker again after a random time."""
        down_ms = int(self.world.rng.expovariate(1 / self.options.downtime_mean_ms)) + 1 if self.is_faulty else 1
        self.world.after(down_ms * MS, self._start_again, broker)

    def _start_again(self, broker: SimBroker) -> None:
        if broker.life is None:
            broker.start()

    def _cut(self) -> None:
        rng = self.world.rng
        if not self.is_faulty:
            return
        one, other = rng.sample([CONTROLLER, *self.brokers], 2)
        links = {(one, other)} if rng.random() < 0.4 else {(one, other), (other, one)}
        if rng.random() < 0.3:
            links = {(one, node) for node in [CONTROLLER, *self.brokers]}
            links |= {(node, one) for _, node in links}
        self.network.cut |= links
        self.note(f"cut {sorted(links)}")
        self.world.after(int(rng.expovariate(1 / (800 * MS))) + 1, self._mend, links)

    def _mend(self, links: set[tuple[int, int]]) -> None:
        self.network.cut -= links

    def _pause(self) -> None:
        rng = self.world.rng
        if self.is_faulty:
            broker = rng.choice(list(self.brokers.values()))
            until_us = self.world.now_us + int(rng.expovariate(1 / (600 * MS)))
            # A broker has one pause at a time, because waiting events must not be overtaken by later ones.
            if broker.paused_until_us <= self.world.now_us:
                broker.paused_until_us = until_us
            self.note(f"broker {broker.broker_id} pauses")

    def _fill(self) -> None:
        if not self.is_faulty:
            return
        rng = self.world.rng
        disk = rng.choice(list(self.brokers.values())).disk
        disk.room = rng.randrange(4)
        self.world.after(int(rng.expovariate(1 / (1_000 * MS))) + 1, self._free, disk)

    def _free(self, disk: SimDisk) -> None:
        if self.is_faulty:
            disk.room = None

    # Administrators and controllers

    def _administer(self) -> None:
        if not self.is_faulty:
            return
        chance = self.world.rng.random()
        if chance < 0.2:
            self._cancel()
        elif chance < 0.4:
            self.note(f"election of the preferred leader: {self.controller.elect_preferred() or 'done'}")
        else:
            self._reassign()

    def _reassign(self) -> None:
        # Never fewer than min.insync.replicas, which would mean fewer then.
        rng = self.world.rng
        count = rng.randint(self.options.min_isr, self.options.broker_count)
        target = rng.sample(sorted(self.brokers), count)
        self.note(f"reassignment to {target}: {self.controller.reassign(target) or 'begun'}")

    def _cancel(self) -> None:
        """Cancels a reassignment, unless a replica may have lost its tail. In that case, the replica that is being
        added may be the only one with every record."""
        before = self.controller.partition
        assert before is not None
        if not before.adding_replicas or self.suspects:
            return
        self.note(f"reassignment cancelled: {self.controller.reassign(None) or 'done'}")
        after = self.controller.partition
        assert after is not None
        self._is_thin = len(after.isr) < self.options.min_isr

    def _fail_over(self) -> None:
        if self.is_faulty:
            self.note("another controller takes over")
            self.controller.fail_over()
