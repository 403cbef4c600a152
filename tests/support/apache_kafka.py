"""Runs a real Apache Kafka, with which tests compare Klamm's behaviour. It is Kafka's own server in KRaft mode, where
each node is broker and controller. It has the settings that Kafka ships, except for addresses, directories and
replication factors. A group also does not wait for its first members."""

from __future__ import annotations

import base64
import contextlib
import pathlib
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from klamm_broker.kafka.api import ApiKey
from tests.support import java_programs
from tests.support.kafka_wire import KafkaWire
from tests.support.ports import free_ports
from tests.support.waiting import patience, wait_until

VERSION = "4.4.0"
HOST = "127.0.0.1"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
"""The options of the JVM. The log cleaner's buffer alone takes 128 MiB of the heap."""
LOG_TAIL_CHARACTERS = 20_000


class ApacheKafka:
    """One cluster of Apache Kafka. `running_kafka` starts and ends it."""

    def __init__(
        self,
        directory: pathlib.Path,
        *,
        brokers: int = 1,
        settings: Mapping[str, str] | None = None,
        secured: Sequence[str] = (),
        properties: Sequence[str] = (),
    ) -> None:
        """Makes a cluster. `secured` names additional listeners, whose keys are in the `settings`. `properties` are
        Java's, as `name=value`."""
        ports = free_ports(range((2 + len(secured)) * brokers))
        self._addresses = [f"{HOST}:{port}" for port in ports[:brokers]]
        self._controllers = [f"{HOST}:{port}" for port in ports[brokers : 2 * brokers]]
        self._secured = {
            name: [f"localhost:{port}" for port in ports[number * brokers : (number + 1) * brokers]]
            for number, name in enumerate(secured, start=2)
        }
        self._directory = directory
        self._settings = dict(settings or {})
        self._properties = [f"-D{each}" for each in properties]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.bootstrap = ",".join(self._addresses)
        """The `host:port` of every broker, separated by commas. The first one is node 1."""
        self.secured_bootstraps = {name: ",".join(addresses) for name, addresses in self._secured.items()}
        """The `host:port` of every broker, separated by commas, by the name of the secured listener."""

    def log(self, node_id: int) -> str:
        """Returns the end of the node's log."""
        return self._log_path(node_id).read_text()[-LOG_TAIL_CHARACTERS:]

    def start(self) -> None:
        """Formats the directories, starts all nodes and returns when each serves clients and knows all others. Raises
        AssertionError with a node's log if the node does not get ready."""
        node_ids = range(1, len(self._addresses) + 1)
        assert java_programs.classpath()
        assert java_programs.kafka_version() == VERSION
        self._processes = {node_id: self._format(node_id) for node_id in node_ids}
        for node_id, process in self._processes.items():
            assert process.wait(patience()) == 0, self.log(node_id)
        for node_id in node_ids:
            self._processes[node_id] = self._run(node_id, "kafka.Kafka", str(self._config_path(node_id)))
        for node_id in node_ids:
            wait_until(partial(self._is_ready, node_id), partial(self.log, node_id), pause_s=0.1)

    @contextlib.contextmanager
    def frozen_broker(self, node_id: int) -> Iterator[None]:
        """Freezes the node for the time of the context."""
        process = self._processes[node_id]
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kills all nodes at once, because their data is not needed any more."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()

    def _is_ready(self, node_id: int) -> bool:
        assert self._processes[node_id].poll() is None, f"Kafka has ended:\n{self.log(node_id)}"
        asked = {
            "topics": [],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        with contextlib.suppress(OSError), KafkaWire(self._addresses[node_id - 1]) as wire:
            return len(wire.ask(ApiKey.METADATA, 12, asked).brokers) == len(self._addresses)
        return False

    def _format(self, node_id: int) -> subprocess.Popen[bytes]:
        config = self._config_path(node_id)
        config.write_text("".join(f"{name}={value}\n" for name, value in self._all_settings(node_id).items()))
        voters = ",".join(
            f"{controller}@{address}:{_directory_id(controller)}"
            for controller, address in enumerate(self._controllers, start=1)
        )
        options = ["--cluster-id", CLUSTER_ID, "--config", str(config), "--initial-controllers", voters]
        return self._run(node_id, "kafka.tools.StorageTool", "format", *options)

    def _all_settings(self, node_id: int) -> dict[str, str]:
        replicas = str(min(3, len(self._addresses)))
        in_sync = str(max(1, min(3, len(self._addresses)) - 1))
        secured = "".join(f",{name}://{each[node_id - 1]}" for name, each in self._secured.items())
        addresses = f"PLAINTEXT://{self._addresses[node_id - 1]},CONTROLLER://{self._controllers[node_id - 1]}"
        return {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "listeners": addresses + secured,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(self._controllers),
            "log.dirs": str(self._directory / f"kafka-{node_id}"),
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
            "group.initial.rebalance.delay.ms": "0",
            **self._settings,
        }

    def _run(self, node_id: int, main_class: str, *arguments: str) -> subprocess.Popen[bytes]:
        with self._log_path(node_id).open("ab") as log:
            command = java_programs.command(main_class, *arguments, jvm=[*JVM, *self._properties])
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=self._directory)

    def _config_path(self, node_id: int) -> pathlib.Path:
        return self._directory / f"kafka-{node_id}.properties"

    def _log_path(self, node_id: int) -> pathlib.Path:
        return self._directory / f"kafka-{node_id}.log"


def _directory_id(node_id: int) -> str:
    """Returns the directory id of a node, as Kafka writes a UUID."""
    return base64.urlsafe_b64encode(bytes(15) + bytes([100 + node_id])).decode().rstrip("=")


@contextlib.contextmanager
def running_kafka(
    directory: pathlib.Path, *, brokers: int = 1, settings: Mapping[str, str] | None = None
) -> Iterator[ApacheKafka]:
    """Yields a started cluster on an empty directory. Skips the test if Java or Maven is missing."""
    kafka = ApacheKafka(directory, brokers=brokers, settings=settings)
    try:
        kafka.start()
        yield kafka
    finally:
        kafka.kill()
