"""The workload "clients": all brokers of `klamm up` are killed at once, again and again, and every real client
continues.

These properties must hold. After each kill, each client writes and reads again within `RECOVERY_S`. No client's call
hangs. In the end, every acknowledged number can be read, and copied numbers are there exactly once. The workload prints
how long each client was interrupted.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import random
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.klammchaos import client_programs
from tests.chaos.klammchaos.partition_cluster import BROKERS
from tests.chaos.klammchaos.up_cluster import UpCluster
from tests.support import java_programs
from tests.support.violation import require
from tests.support.waiting import patience

RECOVERY_S: Final = 120.0
"""The longest recovery time, on a machine that has other work too. Clients back off for up to ten seconds at a time."""
PAUSE_S: Final = (1.0, 6.0)
PARTITIONS: Final = 3
TRANSACTIONS: Final = "confluent-transactions"
JAVA: Final = "java"


class Client:
    """One client: its process (two processes for Java), and the events that it printed, with their times."""

    def __init__(self, kind: str, bootstrap: str, directory: pathlib.Path) -> None:
        self.kind = self.name = kind
        self.acknowledged: list[int] = []
        self._acknowledged_s: list[float] = []
        self.last_s = {"acknowledged": 0.0, "read": 0.0}
        self.stood_still_s: list[float] = []
        self._log_path = directory / f"client-{kind}.log"
        self._processes = [self._start(command) for command in self._commands(bootstrap, directory)]
        self._threads = [
            threading.Thread(target=self._listen, args=[process], daemon=True) for process in self._processes
        ]
        for thread in self._threads:
            thread.start()

    def wait_works(self, since_s: float) -> None:
        """Waits until the client has written and read after that moment."""
        until_s = time.monotonic() + RECOVERY_S
        while min(self.last_s.values()) <= since_s:
            assert all(process.poll() is None for process in self._processes), f"{self.kind} has ended:\n{self.log()}"
            assert time.monotonic() < until_s, (
                f"{self.kind} stands still {time.monotonic() - since_s:.0f} s after the kill,"
                f" last {self.last_s}, killed at {since_s}:\n{self.log()}"
            )
            time.sleep(0.05)

    def recovered_s(self, killed_s: float) -> float:
        """Returns the time from the kill to the client's first acknowledgement after it, in seconds."""
        return next(each_s for each_s in self._acknowledged_s if each_s > killed_s) - killed_s

    def log(self) -> str:
        return self._log_path.read_text()[-3_000:]

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for thread in self._threads:
            thread.join()

    def _commands(self, bootstrap: str, directory: pathlib.Path) -> list[list[str]]:
        if self.kind != JAVA:
            return [[sys.executable, "-m", client_programs.__name__, self.kind, bootstrap, self.name]]
        config = directory / "java-producer.properties"
        # Kafka's tool switches retries and idempotence off.
        config.write_text("retries=2147483647\nenable.idempotence=true\n")
        options = ["--bootstrap-server", bootstrap, "--topic", self.name]
        write = [*options, "--throughput", "50", "--acks", "-1", "--command-config", str(config)]
        read = [*options, "--group-id", self.name, "--reset-policy", "earliest"]
        return [
            java_programs.command("org.apache.kafka.tools.VerifiableProducer", *write),
            java_programs.command("org.apache.kafka.tools.VerifiableConsumer", *read),
        ]

    def _start(self, command: Sequence[str]) -> subprocess.Popen[str]:
        with self._log_path.open("a") as log:
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as said:
            for line in said:
                event, number = _java_event(line) if self.kind == JAVA else _event(line)
                if not event:
                    continue
                self.last_s[event] = time.monotonic()
                if event == "acknowledged":
                    self.acknowledged.append(number)
                    self._acknowledged_s.append(self.last_s[event])


def _event(line: str) -> tuple[str, int]:
    event, _, number = line.partition(" ")
    return event, int(number)


def _java_event(line: str) -> tuple[str, int]:
    """Returns the event and its number from a line of Kafka's tool, or an empty event for its other lines."""
    try:
        said = json.loads(line)
    except ValueError:
        return "", 0
    if said.get("name") == "producer_send_success":
        return "acknowledged", int(said["value"])
    if said.get("name") == "records_consumed" and said["count"]:
        return "read", 0
    return "", 0


def run(*, duration_s: float, seed: int, directory: pathlib.Path, only: str = "", kills: int = 0) -> None:
    """Runs the workload and prints its events. Kills all brokers again and again for `duration_s`, and at least `kills`
    times. Only clients with `only` in their names run. Raises AssertionError if a property does not hold."""
    asyncio.run(_run(duration_s, random.Random(seed), directory, only, kills))


async def _run(duration_s: float, rng: random.Random, directory: pathlib.Path, only: str, kills: int) -> None:
    kinds = [kind for kind in (*client_programs.PROGRAMS, JAVA) if only in kind]
    if JAVA in kinds and not (java_programs.BUILT / ".built").exists():
        # The run has a network of its own, where Maven can download nothing.
        print("left out: Java's client, which make clients fetches", flush=True)
        kinds.remove(JAVA)
    assert kinds, f"no client has {only!r} in its name"
    cluster = UpCluster(directory)
    clients: list[Client] = []
    try:
        cluster.start()
        await asyncio.to_thread(_create_topics, cluster.kafka_bootstrap, kinds)
        clients += [Client(kind, cluster.kafka_bootstrap, directory) for kind in kinds]
        await _wait_all_work(clients, time.monotonic())
        await _strike(cluster, clients, rng, duration_s, kills)
        for client in clients:
            client.end()
        await asyncio.to_thread(_check, cluster.kafka_bootstrap, clients)
    finally:
        for client in clients:
            client.end()
        await cluster.end()


def _create_topics(bootstrap: str, kinds: Sequence[str]) -> None:
    names = [*kinds, f"{TRANSACTIONS}-copy"]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([NewTopic(name, PARTITIONS, len(BROKERS)) for name in names])
    for topic in created.values():
        topic.result(patience())


async def _strike(
    cluster: UpCluster, clients: Sequence[Client], rng: random.Random, duration_s: float, kills: int
) -> None:
    until_s = time.monotonic() + duration_s
    number = 0
    while time.monotonic() < until_s or number < kills:
        await asyncio.sleep(rng.uniform(*PAUSE_S))
        await asyncio.to_thread(cluster.kill, BROKERS)
        killed_s = time.monotonic()
        await cluster.wait_up()
        up_s = time.monotonic() - killed_s
        await _wait_all_work(clients, killed_s)
        number += 1
        for client in clients:
            client.stood_still_s.append(client.recovered_s(killed_s))
        still = ", ".join(f"{client.kind} {client.stood_still_s[-1]:.1f}" for client in clients)
        print(f"kill {number}: brokers are back after {up_s:.1f} s; stood still, in s: {still}", flush=True)
    for client in clients:
        median_s, worst_s = statistics.median(client.stood_still_s), max(client.stood_still_s)
        print(f"{client.kind}: {number} kills, stood still for {median_s:.1f} s, at most {worst_s:.1f} s", flush=True)


async def _wait_all_work(clients: Sequence[Client], since_s: float) -> None:
    await asyncio.gather(*(asyncio.to_thread(client.wait_works, since_s) for client in clients))


def _check(bootstrap: str, clients: Sequence[Client]) -> None:
    """Checks that every acknowledged number is there, and that copied numbers are there once."""
    for client in clients:
        is_copy = client.kind == TRANSACTIONS
        found = Counter(_read_all(bootstrap, f"{client.name}-copy" if is_copy else client.name))
        lost = sorted(set(client.acknowledged) - found.keys())
        require(not lost, f"{client.kind}: {len(lost)} acknowledged numbers are lost: {lost[:20]}")
        twice = sorted(number for number, count in found.items() if count > 1) if is_copy else []
        require(not twice, f"{client.kind}: {len(twice)} numbers were copied twice: {twice[:20]}")
        print(f"{client.kind}: {len(client.acknowledged)} acknowledged numbers are there", flush=True)


def _read_all(bootstrap: str, topic: str) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: list[int] = []
    ended: set[int] = set()
    until_s = time.monotonic() + RECOVERY_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < until_s, f"{topic} is not read to its end: {len(found)} records, ended {ended}"
        for record in consumer.consume(1_000, 0.5):
            if record.error() is None:
                found.append(int(record.value()))
            elif record.error().name() == "_PARTITION_EOF":
                ended.add(record.partition())
    consumer.close()
    return found
