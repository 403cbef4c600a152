"""The workload "partitions": brokers and controllers under faults, idempotent producers with acks=all, and consumers.

These properties must hold (tests/support/log_checker.py). No acknowledged record is lost, doubled or out of order. No
consumer sees a record that is truncated later, or is led back, or past records. After all faults are healed, every
replica is in sync, and the replicas are equal to the byte. No process ends by itself.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import pathlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from klamm_server.config.broker_configs import BROKER_CONFIGS
from tests.chaos.klammchaos import planted_broker
from tests.chaos.klammchaos.figures import quantile
from tests.chaos.klammchaos.node_cluster import NodeCluster
from tests.chaos.klammchaos.partition_cluster import (
    BROKERS,
    CONSUMER,
    DEADLINE_S,
    PARTITIONS,
    PRODUCER,
    TOPIC,
    PartitionCluster,
)
from tests.chaos.klammchaos.partition_faults import PARTITION_FAULTS
from tests.chaos.klammchaos.partition_load import ConsumerClient, ProducerClient, read_everything
from tests.chaos.klammchaos.partition_replicas import check_same_records, differ, flipped_byte
from tests.chaos.klammchaos.partition_strike import PartitionFault, PartitionStrike
from tests.chaos.klammchaos.planted_violations import PLANTED, prove
from tests.chaos.klammchaos.up_cluster import UpCluster
from tests.chaos.klammchaos.up_faults import UP_FAULTS
from tests.support.log_checker import Anomaly, Consumption, History, Outcome, Send, check, summary
from tests.support.violation import Violation, require

PRODUCERS: Final = 3
"""The number of producers. One of them ends now and then, and another one replaces it."""
CONSUMERS: Final = 3
"""The number of consumers. One of them seeks back now and then."""
MIN_INSYNC_REPLICAS: Final = 2
PAUSE_S: Final = (0.3, 2.0)
HASTE_PROBABILITY: Final = 0.2
"""The probability that the next fault strikes before everything has recovered from the last one."""


class PartitionStruck(NamedTuple):
    """A fault that has struck and was healed, with its outage."""

    fault: PartitionFault
    is_fail_over: bool
    outage_s: float
    """The longest time without an acknowledgement of a partition that the struck broker led."""


class HistoryWriter(Protocol):
    """A client that writes to all partitions."""

    sends: list[Send]
    acknowledged_s: dict[int, list[float]]
    """The times of acknowledgements, by partition."""

    async def run(self, stop: asyncio.Event) -> None:
        """Writes until `stop` is set. On return, `sends` has the outcome of every record."""


class HistoryReader(Protocol):
    """A reader of all partitions. Its histories are checked with all others."""

    consumptions: list[Consumption]
    led_astray: list[str]

    async def run(self, written: asyncio.Event) -> None:
        """Reads until `written` is set and it has every record."""


class Watcher(Protocol):
    """A check of another property during the run."""

    async def run(self, written: asyncio.Event) -> None:
        """Watches until `written` is set and it has seen enough. Raises AssertionError if its property does not
        hold."""


class Guests(NamedTuple):
    """The clients of a run besides its own producers and consumers."""

    writers: Sequence[HistoryWriter] = ()
    readers: Sequence[HistoryReader] = ()
    watchers: Sequence[Watcher] = ()


NO_GUESTS: Final = Guests()


class AnomaliesError(Violation):
    """Raised if the history has anomalies. `kinds` has their kinds."""

    def __init__(self, anomalies: Sequence[Anomaly]) -> None:
        super().__init__(summary(anomalies))
        self.kinds = frozenset(anomaly.kind for anomaly in anomalies)


CLUSTERS: Final[Mapping[str, Callable[[pathlib.Path], PartitionCluster]]] = {"nodes": NodeCluster, "up": UpCluster}
"""The kinds of clusters: processes that the run starts itself, or `klamm up`."""


def run(cluster: str = "nodes", *, duration_s: float, seed: int, directory: pathlib.Path, only: str = "") -> None:
    """Runs the workload and prints its events. Only faults with `only` in their names strike. Raises AssertionError if
    a property does not hold."""
    run_for(CLUSTERS[cluster](directory), duration_s, seed, only)


def run_each(
    cluster: PartitionCluster, faults: Sequence[PartitionFault], *, seed: int, readers: Sequence[HistoryReader] = ()
) -> None:
    """Strikes with each of `faults` once, in their order, with additional readers. Raises AssertionError as `run`
    does."""
    asyncio.run(_Run(cluster, seed, Guests(readers=readers)).run(faults, math.inf))


def run_for(cluster: PartitionCluster, duration_s: float, seed: int, only: str, guests: Guests = NO_GUESTS) -> None:
    """Strikes the cluster. Raises AssertionError as `run` does."""
    faults = [fault for fault in (*PARTITION_FAULTS, *UP_FAULTS) if only in fault.name and fault.is_possible(cluster)]
    assert faults, f"no fault that is possible here has {only!r} in its name"
    asyncio.run(_Run(cluster, seed, guests).run(_deal(faults, random.Random(f"{seed}-faults")), duration_s))


def run_planted(planted: str, *, duration_s: float, seed: int, directory: pathlib.Path, only: str = "") -> None:
    """Runs the workload with brokers that have the bug `planted` of `planted_broker`. Raises AssertionError unless the
    run finds the bug."""
    os.environ[planted_broker.VARIABLE] = planted
    cluster = NodeCluster(directory, broker_package=planted_broker.__name__)
    found: frozenset[str] = frozenset()
    try:
        run_for(cluster, duration_s, seed, only)
    except AnomaliesError as error:
        print(error)
        found = error.kinds
    expected = planted_broker.PLANTED_BUGS[planted].anomalies
    require(bool(found & expected), f"{planted} was not found: {sorted(found)}, expected {sorted(expected)}")
    print(f"{planted} was found", flush=True)


class _Run:
    def __init__(self, cluster: PartitionCluster, seed: int, guests: Guests) -> None:
        self._cluster = cluster
        self._rng = random.Random(seed)
        self._stop = asyncio.Event()
        self._producers: list[HistoryWriter] = [
            *(
                ProducerClient(number, cluster.client(PRODUCER), random.Random(f"{seed}-{number}"), mortal=number == 0)
                for number in range(PRODUCERS)
            ),
            *guests.writers,
        ]
        self._consumers: list[HistoryReader] = [
            *(ConsumerClient(cluster.client(CONSUMER)) for _ in range(CONSUMERS - 1)),
            ConsumerClient(cluster.client(CONSUMER), random.Random(f"{seed}-back")),
            *guests.readers,
        ]
        self._watchers = guests.watchers
        self._struck: list[PartitionStruck] = []

    async def run(self, faults: Iterable[PartitionFault], duration_s: float) -> None:
        begin_s = time.monotonic()
        for reason in self._cluster.surroundings.missing:
            print(f"left out: {reason}", flush=True)
        try:
            await self._cluster.begin(MIN_INSYNC_REPLICAS)
            await self._cluster.wait_whole()
            await self._load_and_strike(faults, duration_s)
            await self._cluster.wait_whole()
            final = await read_everything(self._cluster.client(CONSUMER))
            history = History(
                sends=[send for producer in self._producers for send in producer.sends],
                consumptions=[consumption for consumer in self._consumers for consumption in consumer.consumptions],
                final=final,
            )
            self._report(history, time.monotonic() - begin_s)
            self._check_history(history)
            await self._check_replicas()
        except BaseException:
            await asyncio.to_thread(self._cluster.surroundings.save_disks)
            raise
        finally:
            await self._cluster.end()

    async def _load_and_strike(self, faults: Iterable[PartitionFault], duration_s: float) -> None:
        written = asyncio.Event()
        producers = [asyncio.create_task(client.run(self._stop)) for client in self._producers]
        consumers = [asyncio.create_task(one.run(written)) for one in (*self._consumers, *self._watchers)]
        strikes = asyncio.create_task(self._strike_until(faults, time.monotonic() + duration_s))
        tasks = [*producers, *consumers, strikes]
        try:
            # A task of the load that ends before `_stop` is set has failed.
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if strikes.done() and not strikes.exception():
                await self._cluster.wait_whole()
                self._stop.set()
                await _ended(producers, "producers")
                written.set()
                await _ended(consumers, "consumers and watchers")
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for failure in ended:
            if isinstance(failure, Exception):
                raise failure

    # Faults

    async def _strike_until(self, faults: Iterable[PartitionFault], until_s: float) -> None:
        begin_s = time.monotonic()
        await self._wait_for_acknowledgements(range(PARTITIONS), begin_s)
        for fault in faults:
            if time.monotonic() >= until_s:
                return
            struck_s = time.monotonic()
            struck = await self._strike(fault)
            self._struck.append(struck)
            print(
                f"{struck_s - begin_s:7.2f} s  {fault.name}: outage {struck.outage_s:.3f} s"
                f"{' (fail-over)' if struck.is_fail_over else ''}",
                flush=True,
            )
            assert struck.outage_s <= fault.outage_max_s, f"{fault.name}: expected at most {fault.outage_max_s} s"
            await asyncio.sleep(self._rng.uniform(*PAUSE_S))
            if self._rng.random() >= HASTE_PROBABILITY:
                await self._cluster.wait_whole()

    async def _strike(self, fault: PartitionFault) -> PartitionStruck:
        leaders = await self._cluster.leaders()
        was_whole = len(leaders) == PARTITIONS
        leader = self._rng.choice(sorted(set(leaders.values()))) if leaders else self._rng.choice(BROKERS)
        others = [broker for broker in BROKERS if broker != leader]
        self._rng.shuffle(others)
        led = [partition for partition, broker in leaders.items() if broker == leader]
        strike = PartitionStrike(cluster=self._cluster, leader=leader, others=(others[0], others[1]), rng=self._rng)
        begin_s = time.monotonic()
        await fault.strike(strike)
        await self._cluster.wait_up()
        healed_s = time.monotonic()
        await self._wait_for_acknowledgements(range(PARTITIONS), healed_s)
        self._cluster.check_running()
        return PartitionStruck(
            fault, fault.fails_over and was_whole, max((self._outage_s(one, begin_s) for one in led), default=0.0)
        )

    async def _wait_for_acknowledgements(self, partitions: Sequence[int], since_s: float) -> None:
        """Waits until every partition has acknowledged a record that was sent after that moment. Raises AssertionError
        after DEADLINE_S."""
        until_s = time.monotonic() + DEADLINE_S
        while missing := [partition for partition in partitions if self._last_acknowledged_s(partition) <= since_s]:
            self._cluster.check_running()
            assert time.monotonic() < until_s, f"partitions {missing} take nothing: {await self._cluster.partitions()}"
            await asyncio.sleep(0.02)

    def _last_acknowledged_s(self, partition: int) -> float:
        return max(
            (
                producer.acknowledged_s[partition][-1]
                for producer in self._producers
                if producer.acknowledged_s[partition]
            ),
            default=0,
        )

    def _outage_s(self, partition: int, since_s: float) -> float:
        times_s = sorted(
            at_s for producer in self._producers for at_s in producer.acknowledged_s[partition] if at_s > since_s
        )
        return max(after_s - before_s for before_s, after_s in itertools.pairwise([since_s, *times_s]))

    # Results

    def _report(self, history: History, duration_s: float) -> None:
        counts = {outcome: sum(send.outcome is outcome for send in history.sends) for outcome in Outcome}
        print(f"\n{len(self._struck)} faults in {duration_s:.0f} s:")
        for name in sorted({struck.fault.name for struck in self._struck}):
            outages_s = [struck.outage_s for struck in self._struck if struck.fault.name == name]
            print(f"  {name:38} {len(outages_s):3} times, outage {_spread(outages_s)}")
        fail_overs_s = [struck.outage_s for struck in self._struck if struck.is_fail_over]
        session_ms = BROKER_CONFIGS["broker.session.timeout.ms"].default
        print(f"fail-overs: {_spread(fail_overs_s)}, of {len(fail_overs_s)}; broker.session.timeout.ms {session_ms}")
        repeatable = {(send.partition, send.value) for send in history.sends if send.may_repeat}
        copies = Counter((read.partition, read.value) for records in history.final.values() for read in records)
        twice = sum(copies[name] > 1 for name in repeatable)
        print(
            f"sends: {len(history.sends)}, {', '.join(f'{count} {one.value}' for one, count in counts.items())};"
            f" polled {sum(1 for _ in history.polled())} from {len(history.consumptions)} beginnings; in the end"
            f" {sum(map(len, history.final.values()))} records; librdkafka may have written {len(repeatable)} twice,"
            f" and {twice} of these are there twice",
            flush=True,
        )

    def _check_history(self, history: History) -> None:
        begin_s = time.monotonic()
        anomalies = check(history)
        if anomalies:
            raise AnomaliesError(anomalies)
        led_astray = [story for consumer in self._consumers for story in consumer.led_astray]
        require(not led_astray, f"consumers were somewhere where nothing is: {led_astray}")
        checked_s = time.monotonic() - begin_s
        count = prove(history, self._rng)
        print(
            f"no anomalies, in {checked_s:.1f} s; {len(PLANTED)} planted in {count} of the records are found",
            flush=True,
        )

    async def _check_replicas(self) -> None:
        """Stops all brokers, and checks that the replicas of each partition are equal to the byte."""
        await asyncio.to_thread(self._cluster.stop_brokers)
        size = 0
        for number in range(PARTITIONS):
            name = f"{TOPIC}-{number}"
            directories = {broker: self._cluster.log_dir(broker) / name for broker in BROKERS}
            size += check_same_records(name, directories)
            with flipped_byte(directories[self._rng.choice(BROKERS)], self._rng):
                require(differ(name, directories), f"a planted difference of {name} was not found")
        print(f"equal: {len(BROKERS)} replicas of {PARTITIONS} partitions, {size} bytes; planted differences found")


async def _ended(tasks: Sequence[asyncio.Task[None]], whose: str) -> None:
    """Waits until all tasks have ended. Raises AssertionError after DEADLINE_S."""
    _, pending = await asyncio.wait(tasks, timeout=DEADLINE_S)
    assert not pending, f"{len(pending)} of {len(tasks)} {whose} did not end in {DEADLINE_S} s"


def _deal(faults: Sequence[PartitionFault], rng: random.Random) -> itertools.chain[PartitionFault]:
    """Returns the faults in random order, each as often as its weight, again and again."""

    def deck() -> list[PartitionFault]:
        cards = [fault for fault in faults for _ in range(fault.weight)]
        rng.shuffle(cards)
        return cards

    return itertools.chain.from_iterable(iter(deck, None))


def _spread(outages_s: Sequence[float]) -> str:
    if not outages_s:
        return "none"
    return f"p50 {quantile(outages_s, 50):.3f} s, p99 {quantile(outages_s, 99):.3f} s, max {max(outages_s):.3f} s"
