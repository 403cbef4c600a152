"""One controller and several brokers as processes, for tests in which some of them die."""

from __future__ import annotations

import pathlib
import signal
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from klamm import Admin
from klamm.admin import TopicDescription
from tests.support.controller_quorum import HOST
from tests.support.ports import free_port
from tests.support.server_process import ServerProcess
from tests.support.waiting import patience, wait_until

SESSION = {"broker.heartbeat.interval.ms": "200", "broker.session.timeout.ms": "9000"}
"""The heartbeats of a broker, and a session that a busy machine does not end."""


class BrokerCluster:
    """A cluster with the brokers 1 to `brokers`, by their ids. Each of them is in a rack of its own: rack-1, rack-2
    ..."""

    def __init__(
        self,
        directory: pathlib.Path,
        brokers: int,
        log_dirs: int,
        settings: Mapping[str, str],
        kafka_listeners: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self._log_dir_count = log_dirs
        port, self._metrics_port = free_port(), free_port()
        session = {name: settings.get(name, text) for name, text in SESSION.items()}
        self.controller = ServerProcess(
            "klamm_controller",
            1,
            directory,
            {
                "listeners": f"GRPC://{HOST}:{port}",
                "metadata.log.dir": str(directory / "controller"),
                "metrics.port": str(self._metrics_port),
                **session,
            },
        )
        self.brokers = {
            broker_id: ServerProcess(
                "klamm_broker",
                broker_id,
                directory,
                {
                    "listeners": ",".join([f"GRPC://{HOST}:{free_port()}", *kafka_listeners]),
                    "controller.quorum.bootstrap.servers": f"{HOST}:{port}",
                    "log.dirs": ",".join(map(str, self.log_dirs(broker_id))),
                    "broker.rack": f"rack-{broker_id}",
                    "metrics.port": str(free_port()),
                    **session,
                    **settings,
                },
            )
            for broker_id in range(1, brokers + 1)
        }

    def log_dir(self, broker_id: int) -> pathlib.Path:
        """Returns the first log directory of a broker."""
        return self.directory / f"broker-{broker_id}"

    def log_dirs(self, broker_id: int) -> list[pathlib.Path]:
        more = [self.directory / f"broker-{broker_id}-{number}" for number in range(1, self._log_dir_count)]
        return [self.log_dir(broker_id), *more]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def start(self) -> None:
        """Starts the cluster, and returns when every broker serves."""
        self.controller.start()
        for broker in self.brokers.values():
            broker.start()
        with self.admin() as admin:
            wait_until(lambda: len(live_brokers(admin)) == len(self.brokers), self.logs)

    def admin(self) -> Admin:
        return Admin(bootstrap_servers=self.bootstrap)

    def kill(self, broker_id: int) -> None:
        self.brokers[broker_id].end(signal.SIGKILL)

    def restore(self, admin: Admin) -> None:
        """Restores the cluster. Returns when every broker is alive, whatever was done to it."""
        for broker in self.brokers.values():
            if broker.running:
                broker.thaw()
            else:
                broker.start()
        wait_until(lambda: len(live_brokers(admin)) == len(self.brokers), self.logs)

    def controller_metric(self, name: str) -> float:
        """Returns the value of a counter or gauge of the controller that has no labels."""
        return read_metric(self._metrics_port, name)

    def metric(self, broker_id: int, name: str, **labels: str) -> float:
        """Returns the value of a broker's counter or gauge with these labels."""
        return read_metric(int(self.brokers[broker_id].settings["metrics.port"]), name, **labels)

    def metric_total(self, broker_id: int, name: str) -> float:
        """Returns the sum of a broker's counter over all its labels."""
        samples = read_samples(int(self.brokers[broker_id].settings["metrics.port"]))
        return sum(sample.value for sample in samples if sample.name == name)

    def logs(self) -> str:
        """Returns the last lines of all logs."""
        processes = [self.controller, *self.brokers.values()]
        return "\n".join(f"== {process.log_path.name}\n{process.log_path.read_text()[-4000:]}" for process in processes)

    def records(self, broker_id: int, topic: str, partition: int = 0) -> bytes:
        """Returns all bytes that the replica's log has on disk."""
        return b"".join(segment.read_bytes() for segment in self._segments(broker_id, topic, partition))

    def lose_records(self, broker_id: int, topic: str, partition: int = 0) -> None:
        """Empties the replica's log on disk, as a power failure may do. The broker must be dead."""
        for segment in self._segments(broker_id, topic, partition):
            segment.write_bytes(b"")

    def _segments(self, broker_id: int, topic: str, partition: int) -> list[pathlib.Path]:
        name = f"{topic}-{partition}"
        return sorted(path for log_dir in self.log_dirs(broker_id) for path in (log_dir / name).glob("*.log"))


def read_metric(port: int, name: str, **labels: str) -> float:
    """Returns the present value of a process's metric."""
    (value,) = [sample.value for sample in read_samples(port) if (sample.name, sample.labels) == (name, labels)]
    return value


def read_samples(port: int) -> list[Sample]:
    """Returns all samples of metrics that a process shows now."""
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=patience()) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return [sample for family in families for sample in family.samples]


def live_brokers(admin: Admin) -> list[int]:
    return [broker.node_id for broker in admin.describe_cluster().brokers if not broker.fenced]


def describe(admin: Admin, topic: str) -> TopicDescription:
    return admin.describe_topics([topic])[topic]


@contextmanager
def broker_cluster(
    directory: pathlib.Path,
    brokers: int = 3,
    *,
    log_dirs: int = 1,
    kafka_listeners: Sequence[str] = (),
    **settings: str,
) -> Iterator[BrokerCluster]:
    """Yields a started cluster. Each broker has `kafka_listeners` beside its gRPC listener. At the end, none of the
    processes runs any more."""
    named = {name.replace("_", "."): text for name, text in settings.items()}
    cluster = BrokerCluster(directory, brokers, log_dirs, named, kafka_listeners)
    try:
        cluster.start()
        yield cluster
    finally:
        for process in [cluster.controller, *cluster.brokers.values()]:
            process.abandon()
