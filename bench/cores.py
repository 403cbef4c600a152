"""Brokers on several cores: the throughput of a host with more processes, and of a skewed cluster that is balanced.

    python bench/cores.py [--seconds 6] [--rounds 3] [--processes 1 2] [--only processes|balance|idle]

`processes`: `klamm-broker --processes N` on this machine, by turns for each N. For each broker a process sends prepared
Produce requests to the partitions that it leads, 16 of them under way. Clients share the cores with the brokers.
The CPU time of a request tells what the brokers could do on cores of their own.
`idle`: what N brokers without clients cost, with a topic of 12 partitions for each of them.
`balance`: all partitions are on one of two brokers, while librdkafka sends batches of one record. The rate is measured
before, during and after `klamm cluster balance`.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Barrier
from typing import Final, NamedTuple

import psutil

from bench.cluster import wait_until
from bench.kafka_produce import TOPIC, Connection, request_of
from bench.turns import rounds
from klamm import Admin, NewTopic
from klamm.health import check
from klamm.records.encoder import encode_batch
from klamm_embedded.ports import usable_ports

HOST: Final = "127.0.0.1"
PARTITIONS: Final = 12
UNDER_WAY: Final = 16
RECORD_BYTES: Final = 1_000
FIRST_ID: Final = 100
STEP: Final = 10


class Host(NamedTuple):
    """A controller and `klamm-broker --processes`."""

    grpc: str
    kafka_port: int
    supervisor: psutil.Process
    controller: psutil.Process

    def kafka_port_of(self, broker_id: int) -> int:
        return self.kafka_port + STEP * (broker_id - FIRST_ID)

    def cpu_s(self) -> float:
        """Returns the CPU seconds of all brokers so far."""
        times = [child.cpu_times() for child in self.supervisor.children()]
        return sum(time.user + time.system for time in times)

    def rss_mb(self) -> float:
        """Returns the resident memory of one broker, as the mean of all."""
        return statistics.mean(child.memory_info().rss / 1e6 for child in self.supervisor.children())


@contextlib.contextmanager
def host_of(processes: int) -> Iterator[Host]:
    """Yields a host with fresh directories after all its brokers serve."""
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as scratch, contextlib.ExitStack() as ending:
        # The blocks of ports are far apart, because those of the processes follow the first ones.
        (controller,) = usable_ports([(HOST, 0)])
        grpc = 20_004 + 1_000 * (os.getpid() % 10)
        settings = {
            "node.id": FIRST_ID,
            "listeners": f"GRPC://{HOST}:{grpc},KAFKA://{HOST}:{grpc - 2}",
            "controller.quorum.bootstrap.servers": f"{HOST}:{controller}",
            "log.dirs": pathlib.Path(scratch, "broker"),
            "log.level": "WARNING",
        }
        own = {"listeners": f"GRPC://{HOST}:{controller}", "metadata.log.dir": pathlib.Path(scratch, "controller")}
        quorum = ending.enter_context(_server("klamm_controller", {"node.id": 1, **own, "log.level": "WARNING"}))
        options = ["--processes", str(processes)]
        brokers = ending.enter_context(_server("klamm_broker", settings, options))

        def serves() -> bool:
            try:
                return check(HOST, grpc + 9, timeout_s=10) == "SERVING"
            except OSError:
                return False

        wait_until(serves, "all brokers serve", pause_s=0.2)
        yield Host(f"{HOST}:{grpc}", grpc - 2, psutil.Process(brokers.pid), psutil.Process(quorum.pid))


@contextlib.contextmanager
def _server(
    package: str, settings: dict[str, object], options: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    sets = [f"--set={name}={value}" for name, value in settings.items()]
    process = subprocess.Popen([sys.executable, "-m", package, *options, *sets])
    try:
        yield process
    finally:
        process.terminate()
        process.wait(120)


def leaders(host: Host, topic: str) -> dict[int, list[int]]:
    """Returns the partitions that each broker leads, after every partition has a leader."""
    with Admin(bootstrap_servers=host.grpc) as admin:

        def found() -> dict[int, list[int]]:
            led: dict[int, list[int]] = {}
            for partition in admin.describe_topics([topic])[topic].partitions:
                led.setdefault(partition.leader, []).append(partition.partition)
            return led

        wait_until(lambda: -1 not in found(), "every partition has a leader")
        return found()


def send_requests(
    port: int, partitions: list[int], batch_bytes: int, done: Synchronized[int], begin: Barrier, seconds: float
) -> None:
    """Sends prepared requests for that time after all clients are ready, and adds the number of answers to `done`."""
    records = max(1, (batch_bytes - 61) // (RECORD_BYTES + 12))
    batch = bytes(encode_batch([(int(time.time() * 1000), None, bytes(RECORD_BYTES), ())] * records))
    half = UNDER_WAY // 2
    requests = b"".join(request_of(batch, partitions[number % len(partitions)], 1) for number in range(half))
    connection = Connection(f"{HOST}:{port}")
    begin.wait()
    until_s = time.perf_counter() + seconds
    connection.send(requests)
    answered = 0
    while time.perf_counter() < until_s:
        connection.send(requests)
        for _ in range(half):
            connection.answer()
        answered += half
    connection.close()
    with done.get_lock():
        done.value += answered


def measure_processes(processes: int, batch_bytes: int, seconds: float) -> tuple[float, float, float]:
    """Returns requests per second, CPU microseconds of brokers per request, and MB of memory per broker."""
    with host_of(processes) as host:
        with Admin(bootstrap_servers=host.grpc) as admin:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
        led = leaders(host, TOPIC)
        assert len(led) == processes, led
        context = multiprocessing.get_context("spawn")
        done, begin = context.Value("q", 0), context.Barrier(processes + 1)
        clients = [
            context.Process(
                target=send_requests, args=(host.kafka_port_of(each), own, batch_bytes, done, begin, seconds)
            )
            for each, own in led.items()
        ]
        for client in clients:
            client.start()
        begin.wait()
        before_s = host.cpu_s()
        for client in clients:
            client.join()
        return done.value / seconds, (host.cpu_s() - before_s) / max(1, done.value) * 1e6, host.rss_mb()


def run_processes(counts: Sequence[int], round_count: int, seconds: float) -> None:
    """Prints the throughput of a host with each number of processes."""
    print("| request | processes | requests/s | ratio | broker CPU us/request | MB per broker |")
    print("|---|---|---|---|---|---|")
    for name, batch_bytes in (("1 KiB", 1_100), ("16 KiB", 16_384)):
        runs: dict[int, list[tuple[float, float, float]]] = {count: [] for count in counts}
        for order in rounds(counts, round_count):
            for count in order:
                runs[count].append(measure_processes(count, batch_bytes, seconds))
        # Other programs on the machine only take away, so the best round is nearest to an idle machine.
        base = max(rate for rate, _, _ in runs[counts[0]])
        for count in counts:
            rates, cpu_us_all, rss_mb_all = zip(*runs[count], strict=True)
            rate, cpu_us, rss_mb = max(rates), statistics.median(cpu_us_all), statistics.median(rss_mb_all)
            row = (name, count, f"{rate:,.0f}", f"{rate / base:.2f}", f"{cpu_us:.0f}", f"{rss_mb:.0f}")
            print(f"| {' | '.join(map(str, row))} |", flush=True)


def run_idle(counts: Sequence[int], seconds: float) -> None:
    """Prints what brokers without clients cost."""
    print("| processes | start s | stop s | brokers' CPU, cores | controller's | MB per broker | of these shared |")
    print("|---|---|---|---|---|---|---|")
    for count in counts:
        started_s = time.perf_counter()
        with host_of(count) as host, Admin(bootstrap_servers=host.grpc) as admin:
            took_s = time.perf_counter() - started_s
            admin.create_topics([NewTopic(TOPIC, PARTITIONS * count, 1)])
            leaders(host, TOPIC)
            time.sleep(seconds)
            before_s, before_controller_s = host.cpu_s(), _cpu_s(host.controller)
            time.sleep(seconds)
            cores = (host.cpu_s() - before_s) / seconds
            controller_cores = (_cpu_s(host.controller) - before_controller_s) / seconds
            told = [child.memory_full_info() for child in host.supervisor.children()]
            memory = [(each.rss, each.pss) for each in told]
            rss_mb, pss_mb = (statistics.mean(figures) / 1e6 for figures in zip(*memory, strict=True))
            stopping_s = time.perf_counter()
            host.supervisor.terminate()
            wait_until(lambda: host.supervisor.status() == psutil.STATUS_ZOMBIE, "all brokers have stopped")
            stop_s = time.perf_counter() - stopping_s
            row = (count, f"{took_s:.1f}", f"{stop_s:.1f}", f"{cores:.3f}", f"{controller_cores:.3f}")
            print(f"| {' | '.join(map(str, row))} | {rss_mb:.0f} | {rss_mb - pss_mb:.0f} |", flush=True)


def send_records(bootstrap: str, sent: Synchronized[int], stopping: Synchronized[int]) -> None:
    """Sends records with librdkafka, one in each batch, and counts those that are no longer on their way."""
    from confluent_kafka import Producer

    settings = {"linger.ms": 0, "batch.num.messages": 1, "acks": 1, "queue.buffering.max.messages": 1_000}
    producer = Producer({"bootstrap.servers": bootstrap, "topic.metadata.refresh.interval.ms": 1_000, **settings})
    value, number = bytes(RECORD_BYTES), 0
    while not stopping.value:
        try:
            producer.produce(TOPIC, value, partition=number % PARTITIONS)
            number += 1
        except BufferError:
            producer.poll(0.001)
            sent.value = number - len(producer)
    producer.flush(60)


def run_balance(seconds: float) -> None:
    """Prints the rate of producers before, during and after the balance of a skewed cluster."""
    with host_of(2) as host, Admin(bootstrap_servers=host.grpc) as admin:
        admin.create_topics([NewTopic(TOPIC, assignments=dict.fromkeys(range(PARTITIONS), (FIRST_ID,)))])
        leaders(host, TOPIC)
        context = multiprocessing.get_context("spawn")
        sent, stopping = context.Value("q", 0), context.Value("b", 0)
        client = context.Process(target=send_records, args=(f"{HOST}:{host.kafka_port}", sent, stopping))
        client.start()
        try:
            wait_until(lambda: sent.value > 1_000, "the producer sends")
            rows = [("before", *_rate(host, sent, lambda: time.sleep(seconds)))]
            command = [sys.executable, "-m", "klamm", "cluster", "balance", "--bootstrap", host.grpc, "--yes"]
            balance = [*command, "--measure", str(seconds / 2)]
            rows.append(("during", *_rate(host, sent, lambda: subprocess.run(balance, check=True))))
            rows.append(("after", *_rate(host, sent, lambda: time.sleep(seconds))))
            subprocess.run([*command[:-1], "--dry-run", "--measure", str(seconds / 2)], check=True)
        finally:
            stopping.value = 1
            client.join()
        print("| | records/s | ratio | CPU of brokers, cores |\n|---|---|---|---|")
        for name, rate, cores in rows:
            print(f"| {name} | {rate:,.0f} | {rate / rows[0][1]:.2f} | {' + '.join(f'{core:.2f}' for core in cores)} |")


def _rate(host: Host, sent: Synchronized[int], act: Callable[[], object]) -> tuple[float, list[float]]:
    """Returns the records per second while `act` runs, and the cores that each broker used."""
    children = host.supervisor.children()
    before, started_s, first = [_cpu_s(child) for child in children], time.time(), sent.value
    act()
    took_s = time.time() - started_s
    cores = [(_cpu_s(child) - used) / took_s for child, used in zip(children, before, strict=True)]
    return (sent.value - first) / took_s, cores


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", choices=["processes", "balance", "idle"])
    options = parser.parse_args()
    if options.only in (None, "processes"):
        run_processes(options.processes, options.rounds, options.seconds)
    if options.only in (None, "idle"):
        run_idle(options.processes, options.seconds)
    if options.only in (None, "balance"):
        run_balance(options.seconds)


if __name__ == "__main__":
    main()
