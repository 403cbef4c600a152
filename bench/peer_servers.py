"""Starts Klamm and Apache Kafka side by side, each as its makers start it, and reads their CPU time and memory.

Klamm is `klamm up`. Kafka is its published jars in KRaft mode (broker and controller in one process), with the heap and
collector settings of its own start script. Both keep their shipped settings but for addresses, directories,
replication factors of internal topics (one node has no three), and the minute that deleted topics stay on the disk.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from bench.servers import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "peers"
POM = pathlib.Path(__file__).with_name("peers-pom.xml")
KAFKA_VERSION = re.findall(r"<version>(.*)</version>", POM.read_text())[-1]
HOST = "127.0.0.1"
READY_S = 120
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
SHORTLY_DELETED = {"log.segment.delete.delay.ms": "1000"}
KAFKA_JVM = (
    "-Xmx1G -Xms1G -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35"
    " -XX:+ExplicitGCInvokesConcurrent -Djava.awt.headless=true"
)
"""The JVM options of kafka-run-class.sh and kafka-server-start.sh."""


@dataclass
class Peer:
    """A running server or cluster."""

    name: str
    bootstrap: str
    started: list[psutil.Process]
    """The processes that were started. Their child processes count too."""

    def cpu_s(self) -> float:
        """CPU seconds used so far by all its processes, user and system, and by those that ended."""
        times = self._ask(psutil.Process.cpu_times)
        return sum(time.user + time.system + time.children_user + time.children_system for time in times)

    def rss_mb(self) -> float:
        """Resident memory of all its processes."""
        return sum(each.rss for each in self._ask(psutil.Process.memory_info)) / 1e6

    def _ask(self, question: Callable[[psutil.Process], Any]) -> list[Any]:
        answers = []
        for process in self.started:
            for each in (process, *process.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    answers.append(question(each))
        return answers


Start = Callable[[pathlib.Path], contextlib.AbstractContextManager[Peer]]
"""Starts a peer in a directory. The context is entered when the peer's process has started, even if it does not serve
yet."""


def kafka_class_path() -> str:
    """The class path of Kafka's jars, which Maven fetches the first time."""
    libs = BUILD / f"kafka-libs-{KAFKA_VERSION}"
    if not libs.exists():
        fetched = libs.with_suffix(".part")
        shutil.rmtree(fetched, ignore_errors=True)
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={fetched}"]
        subprocess.run(["mvn", "--quiet", "--batch-mode", "--file", str(POM), *goal], check=True)
        fetched.rename(libs)
    return f"{libs}/*"


def java(main_class: str, *arguments: str, jvm: str = "") -> list[str]:
    """The command that runs a class of Kafka's."""
    return ["java", *jvm.split(), "-cp", kafka_class_path(), main_class, *arguments]


@contextlib.contextmanager
def klamm(
    directory: pathlib.Path,
    nodes: int = 1,
    settings: Mapping[str, str] | None = None,
    *,
    grpc_port: int = 0,
    checkout: pathlib.Path = ROOT,
) -> Iterator[Peer]:
    """Runs `klamm up`. With three nodes, each has a controller, a broker and a coordinator. `grpc_port` must be that of
    `listeners` if `settings` have them. `checkout` is another checkout, in which gRPC's code is built."""
    kafka_port = free_port()
    command = [sys.executable, "-m", "klamm", "up", "--data-dir", str(directory / "klamm"), "--host", HOST]
    command += ["--port", str(grpc_port)]
    if nodes > 1:
        command += ["--brokers", str(nodes), "--controllers", str(nodes), "--coordinators", str(nodes)]
    else:
        command += ["--kafka-port", str(kafka_port)]
    for name, value in {**SHORTLY_DELETED, **(settings or {})}.items():
        command += ["--set", f"{name}={value}"]
    sources = os.pathsep.join(map(str, (checkout, *checkout.glob("services/*"))))
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=checkout, env={**os.environ, "PYTHONPATH": sources}
    )
    try:
        bootstrap = f"{HOST}:{kafka_port}" if nodes == 1 else _klamm_bootstrap(process)
        yield Peer("klamm", bootstrap, [psutil.Process(process.pid)])
    finally:
        end(process)


def _klamm_bootstrap(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    ready = re.search(r"Kafka clients at (\S+), data", process.stdout.readline())
    assert ready, "klamm up did not get ready"
    return ready[1]


@contextlib.contextmanager
def kafka(directory: pathlib.Path, nodes: int = 1, settings: Mapping[str, str] | None = None) -> Iterator[Peer]:
    """Runs nodes that are broker and controller. Their directories are formatted before, so that this takes none of
    their time."""
    ports = [(free_port(), free_port()) for _ in range(nodes)]
    configs = [format_kafka(directory, node_id, ports, settings) for node_id in range(1, nodes + 1)]
    with start_kafka(configs, ports) as peer:
        yield peer


@contextlib.contextmanager
def start_kafka(configs: list[pathlib.Path], ports: list[tuple[int, int]]) -> Iterator[Peer]:
    """Nodes whose directories are formatted."""
    processes = []
    try:
        for config in configs:
            with config.with_suffix(".log").open("ab") as log:
                command = java("kafka.Kafka", str(config), jvm=KAFKA_JVM)
                processes.append(subprocess.Popen(command, stdout=log, stderr=log, text=True))
        bootstrap = ",".join(f"{HOST}:{broker}" for broker, _ in ports)
        yield Peer("kafka", bootstrap, [psutil.Process(process.pid) for process in processes])
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            end(process)


def format_kafka(
    directory: pathlib.Path,
    node_id: int,
    ports: list[tuple[int, int]],
    settings: Mapping[str, str] | None = None,
) -> pathlib.Path:
    """Writes a node's configuration, where `settings` come before what is set here, and formats its directory."""
    broker, controller = ports[node_id - 1]
    replicas = min(3, len(ports))
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "listeners": f"PLAINTEXT://{HOST}:{broker},CONTROLLER://{HOST}:{controller}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{each}@{HOST}:{port}" for each, (_, port) in enumerate(ports, 1)),
        "log.dirs": str(directory / f"kafka-{node_id}"),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(max(1, replicas - 1)),
        "share.coordinator.state.topic.min.isr": str(max(1, replicas - 1)),
        "min.insync.replicas": str(max(1, replicas - 1)),
        "group.initial.rebalance.delay.ms": "0",
        **SHORTLY_DELETED,
        **(settings or {}),
    }
    config = directory / f"kafka-{node_id}.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    command = java("kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", str(config))
    subprocess.run(command, check=True, capture_output=True)
    return config


def end(process: subprocess.Popen[str]) -> None:
    """Terminates it, and kills it if it is still there after a minute."""
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


@contextlib.contextmanager
def both(nodes: int) -> Iterator[tuple[Peer, Peer]]:
    """Yields Klamm and Kafka at once, on fresh directories of one disk. The one that is not measured is idle."""
    with (
        tempfile.TemporaryDirectory(prefix="klamm-peers-", ignore_cleanup_errors=True) as scratch,
        klamm(pathlib.Path(scratch), nodes) as ours,
        kafka(pathlib.Path(scratch), nodes) as theirs,
    ):
        yield ours, theirs


def idle_s(seconds: float) -> None:
    """Lets the servers settle."""
    time.sleep(seconds)
