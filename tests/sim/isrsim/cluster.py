"""Brokers, a controller, and the faults that befall them."""

from __future__ import annotations

from collections import deque

from raftsim.world import MS, World

from isrsim.broker import SimBroker
from isrsim.checks import Checks, ViolationError
from isrsim.controller import SimController
from isrsim.network import CONTROLLER, Network
from isrsim.options import Options
from klamm_server.metadata.image import MetadataImage


class Cluster:
    """See the module."""

    def __init__(self, world: World, options: Options, trace: deque[str] | None) -> None:
        self.world = world
        self.options = options
        self._trace = trace
        self.suspects: dict[int, int] = {}
        """Brokers that stopped uncleanly and are not in sync since, with the epoch of the life that ended so."""
        self.lossy: set[int] = set()
        """Those of them that lost the tail of their log."""
        self.network = Network(world, options)
        self.checks = Checks(self)
        self.brokers: dict[int, SimBroker] = {}
        self.controller = SimController(world, self.network, options, self._on_commit)
        self.brokers = {number: SimBroker(number, self) for number in range(1, options.replica_count + 1)}
        self._next_value = 0
        self._is_faulty = True
        self.is_producing = True

    def note(self, text: str) -> None:
        """A line for whoever wants to know what led to a violation."""
        if self._trace is not None:
            self._trace.append(f"{self.world.now_us / MS:10.3f} {text}")

    # What brokers report

    def on_append(self, broker: SimBroker) -> None:
        self.checks.on_append(broker)

    def on_acknowledged(self, broker: SimBroker, offset: int, value: int) -> None:
        self.checks.after_step(broker)
        self.checks.on_acknowledged(broker, offset, value)

    def on_read(self, broker: SimBroker, end_offset: int) -> None:
        self.checks.after_step(broker)
        self.checks.on_read(broker, end_offset)

    def after_step(self, broker: SimBroker) -> None:
        self.checks.after_step(broker)

    def _on_commit(self, image: MetadataImage) -> None:
        partition = image.partition("t", 0)
        if partition is None:
            return
        for broker_id in partition.isr:
            if image.brokers[broker_id].broker_epoch > self.suspects.get(broker_id, image.end_index):
                del self.suspects[broker_id]
                self.lossy.discard(broker_id)
        self.checks.on_commit(partition)

    def is_dead_in_secret(self, broker_id: int) -> bool:
        """Whether it lost a tail and the controller cannot know yet."""
        known_epoch = self.controller.image.brokers[broker_id].broker_epoch
        return broker_id in self.lossy and known_epoch == self.suspects[broker_id]

    # Load

    def begin(self) -> None:
        """Starts everybody; the topic is there when all are registered."""
        for broker in self.brokers.values():
            broker.start()
        self.world.run_until(self.world.now_us + 60_000 * MS, self._all_unfenced)
        self.controller.create_topic(sorted(self.brokers), self.options.min_isr)
        self._repeat(self.options.produce_mean_ms, self._produce)
        self._repeat(self.options.read_mean_ms, self._consume)
        for mean_ms, fault in (
            (self.options.crash_mean_ms, self._crash),
            (self.options.partition_mean_ms, self._cut),
            (self.options.pause_mean_ms, self._pause),
        ):
            if mean_ms:
                self._repeat(mean_ms, fault)

    def _all_unfenced(self) -> bool:
        brokers = self.controller.image.brokers
        return len(brokers) == len(self.brokers) and not any(broker.fenced for broker in brokers.values())

    def _repeat(self, mean_ms: int, action: object) -> None:
        def again() -> None:
            action()  # type: ignore[operator]
            self.world.after(int(self.world.rng.expovariate(1 / (mean_ms * MS))) + 1, again)

        again()

    def _produce(self) -> None:
        """To whoever believes to lead, as a client would with metadata of any age."""
        if self.is_producing:
            self.produce()

    def produce(self) -> None:
        """One record."""
        for broker in self._leaders():
            self._next_value += 1
            broker.receive(None, broker.produce, self._next_value)

    def _consume(self) -> None:
        for broker in self._leaders():
            broker.receive(None, broker.consume)

    def _leaders(self) -> list[SimBroker]:
        return [one for one in self.brokers.values() if one.partition is not None and one.partition.is_leader]

    # Faults

    def heal(self) -> None:
        """No more faults, and those there are end."""
        self._is_faulty = self.is_producing = False
        self.network.is_faulty = False
        self.network.cut.clear()
        for broker in self.brokers.values():
            if broker.life is None:
                broker.start()

    def _crash(self) -> None:
        rng, options = self.world.rng, self.options
        alive = [broker for broker in self.brokers.values() if broker.life is not None and broker.partition is not None]
        if not self._is_faulty or not alive:
            return
        broker = rng.choice(alive)
        assert broker.life is not None
        if rng.random() < options.shutdown_probability:
            broker.shut_down()
            return
        # KIP-966 bears min.insync.replicas - 1 unclean stops that may lose a tail; the controller cannot tell which do.
        is_borne = len(self.suspects.keys() | {broker.broker_id}) < options.min_isr
        if self.lossy and not is_borne:
            return
        self.suspects[broker.broker_id] = broker.life.epoch
        if is_borne and rng.random() < options.lossy_crash_probability:
            self.lossy.add(broker.broker_id)
            broker.crash(rng.randint(broker.log.durable_count, broker.log.log_end_offset))
        else:
            broker.crash()

    def after_down(self, broker: SimBroker) -> None:
        """It comes back some time."""
        down_ms = int(self.world.rng.expovariate(1 / self.options.downtime_mean_ms)) + 1 if self._is_faulty else 1
        self.world.after(down_ms * MS, self._start_again, broker)

    def _start_again(self, broker: SimBroker) -> None:
        if broker.life is None:
            broker.start()

    def _cut(self) -> None:
        rng = self.world.rng
        if not self._is_faulty:
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
        if self._is_faulty:
            broker = rng.choice(list(self.brokers.values()))
            broker.paused_until_us = self.world.now_us + int(rng.expovariate(1 / (600 * MS)))
            self.note(f"broker {broker.broker_id} pauses")


__all__ = ["Cluster", "ViolationError"]
