"""Controllers, brokers and coordinators as processes of their own, laid out as `klamm up` does it.

Unlike there nobody starts again what dies, so that a benchmark decides when. Settings are the shipped defaults.
"""

from __future__ import annotations

import contextlib
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import psutil

from klamm import Admin, KlammError, TopicPartition
from klamm.admin import PartitionDescription
from klamm_embedded.layout import ClusterSize, Ports, ProcessSpec, lay_out
from klamm_embedded.ports import usable_ports

HOST = "127.0.0.1"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
TIMEOUT_S = 300.0


class ServerProcess:
    """One process over all its restarts. It keeps its port and directory."""

    def __init__(self, spec: ProcessSpec, log_path: pathlib.Path) -> None:
        self.spec = spec
        self.log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        arguments = [f"--set={name}={value}" for name, value in self.spec.settings.items()]
        with self.log_path.open("ab") as log:
            command = [sys.executable, "-m", self.spec.package, *arguments]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def end(self, number: int) -> int:
        """Sends the signal, waits for the end, and returns the exit status."""
        assert self._process is not None, self.spec.name
        self._process.send_signal(number)
        return self._process.wait(60)

    @property
    def pid(self) -> int:
        """The id of the server's present process."""
        assert self._process is not None, self.spec.name
        return self._process.pid

    def cpu_s(self) -> float:
        """CPU seconds of the present life so far, user and system."""
        times = psutil.Process(self.pid).cpu_times()
        return times.user + times.system

    def rss_mb(self) -> float:
        """Resident memory."""
        return psutil.Process(self.pid).memory_info().rss / 1e6

    def abandon(self) -> None:
        """Kills the process if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self.end(signal.SIGKILL)


class Cluster:
    """Members by node.id."""

    def __init__(self, directory: pathlib.Path, size: ClusterSize, settings: dict[str, str]) -> None:
        ports = [Ports(grpc=port) for port in usable_ports([(HOST, 0)] * size.total)]
        specs = lay_out(size, data_dir=directory, host=HOST, ports=ports, cluster_id=CLUSTER_ID, settings=settings)
        self.directory = directory
        members = [ServerProcess(spec, directory / f"{spec.name.replace(' ', '-')}.out") for spec in specs]
        self.members = members
        self.controllers, self.brokers, self.coordinators = (
            {member.spec.node_id: member for member in members if member.spec.package == f"klamm_{kind}"}
            for kind in ("controller", "broker", "coordinator")
        )

    @property
    def bootstrap(self) -> str:
        return ",".join(member.spec.address for member in self.brokers.values())

    def admin(self) -> Admin:
        return Admin(bootstrap_servers=self.bootstrap)

    def wait_live(self, admin: Admin) -> None:
        """Waits until every broker is unfenced."""

        def all_live() -> bool:
            try:
                brokers = admin.describe_cluster().brokers
            except KlammError:
                return False
            return sum(not broker.fenced for broker in brokers) == len(self.brokers)

        wait_until(all_live, "every broker is live")

    def broker_cpu_s(self) -> float:
        """CPU seconds of all brokers."""
        return sum(member.cpu_s() for member in self.brokers.values())


@contextlib.contextmanager
def cluster(*, controllers: int = 1, brokers: int = 3, coordinators: int = 0, **settings: str) -> Iterator[Cluster]:
    """Yields a started cluster on fresh directories, with every broker live. `settings` have `_` for `.`."""
    size = ClusterSize(controllers=controllers, brokers=brokers, coordinators=coordinators)
    named = {name.replace("_", "."): value for name, value in settings.items()}
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as scratch:
        made = Cluster(pathlib.Path(scratch), size, {"log.level": "WARNING", **named})
        try:
            for member in made.members:
                member.start()
            with made.admin() as admin:
                made.wait_live(admin)
            yield made
        except BaseException:
            for member in made.members:
                print(f"== {member.spec.name}\n{member.log_path.read_text()[-2000:]}", file=sys.stderr)
            raise
        finally:
            for member in made.members:
                member.abandon()


def wait_until(condition: Callable[[], bool], what: str, *, pause_s: float = 0.02) -> None:
    """Checks the condition again and again, and fails after a time-out."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {TIMEOUT_S:.0f} s: {what}"
        time.sleep(pause_s)


def describe(admin: Admin, topic: str) -> dict[TopicPartition, PartitionDescription]:
    """The topic's partitions."""
    found = admin.describe_topics([topic])[topic].partitions
    return {TopicPartition(topic, each.partition): each for each in found}


def wait_whole(admin: Admin, topic: str) -> dict[TopicPartition, PartitionDescription]:
    """Waits until every replica of `topic` is in sync, and returns its partitions."""

    def whole() -> bool:
        return all(set(each.isr) == set(each.replicas) for each in describe(admin, topic).values())

    wait_until(whole, f"all replicas of {topic} are in sync")
    return describe(admin, topic)
