"""One cluster for all clients, and the table of what each client does (`table.py`).

The cluster has three brokers, so that clients meet redirections and replicas.
"""

from __future__ import annotations

import contextlib
import gc
import re
import subprocess
import sys
import uuid
import warnings
from collections.abc import Callable, Generator, Iterator

import psutil
import pytest

from tests.clients.table import PAGES, Comparison, Outcomes, write_between_markers
from tests.support.all_brokers import wait_until_everywhere
from tests.support.apache_kafka import ApacheKafka, running_kafka
from tests.support.kafka_wire import KafkaWire
from tests.support.klamm_process import KlammProcess, running_cluster

TIMEOUT_S = 60
_outcomes = pytest.StashKey[Outcomes]()
_comparison = pytest.StashKey[Comparison]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--table", action="store_true", help="write the tables into their pages of docs/reference")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_outcomes] = Outcomes()
    config.stash[_comparison] = Comparison()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if not report.skipped and (report.when == "call" or report.failed):
        for marker in item.iter_markers("behaviour"):
            item.config.stash[_outcomes].add(*marker.args, passed=report.passed)
        for marker in item.iter_markers("spark_case"):
            item.config.stash[_comparison].add(*marker.args, passed=report.passed)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    tables = {"clients": config.stash[_outcomes].lines(), "spark": config.stash[_comparison].lines()}
    for name, lines in tables.items():
        if not lines:
            continue
        terminalreporter.section(name)
        terminalreporter.write("\n".join(["", *lines, ""]))
        if config.getoption("--table"):
            write_between_markers(PAGES[name], name, lines)


class Cluster:
    """Processes as `klamm up` starts them, and starts them again."""

    def __init__(self, process: subprocess.Popen[str], klamm_bootstrap: str, bootstrap: str) -> None:
        self._process = process
        self.klamm_bootstrap = klamm_bootstrap
        """The addresses for Klamm's own client."""
        self.bootstrap = bootstrap
        """The Kafka listeners."""

    def kill_broker(self, broker_id: int) -> None:
        """Kills the broker at once, with SIGKILL."""
        self._broker(broker_id).kill()

    @contextlib.contextmanager
    def frozen_broker(self, broker_id: int) -> Iterator[None]:
        """Freezes the broker for the time of the context."""
        broker = self._broker(broker_id)
        broker.suspend()
        try:
            yield
        finally:
            broker.resume()

    def _broker(self, broker_id: int) -> psutil.Process:
        (broker,) = (
            child
            for child in psutil.Process(self._process.pid).children(recursive=True)
            if "klamm_broker" in child.cmdline() and f"--set=node.id={broker_id}" in child.cmdline()
        )
        return broker


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers."""
    directory = tmp_path_factory.mktemp("clients")
    command = [sys.executable, "-m", "klamm", "up", "--data-dir", str(directory / "data"), "--port", "0"]
    with (directory / "up.log").open("w") as log:
        process = subprocess.Popen([*command, "--brokers", "3"], stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        ready = re.search(r"ready at (\S+), Kafka clients at (\S+), data", line)
        assert ready, line + (directory / "up.log").read_text()
        yield Cluster(process, ready[1], ready[2])
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)
        process.stdout.close()


@pytest.fixture(scope="session")
def bootstrap(cluster: Cluster) -> str:
    """The Kafka listeners."""
    return cluster.bootstrap


@pytest.fixture
def wire(bootstrap: str) -> Iterator[KafkaWire]:
    """Yields one connection to one broker."""
    with KafkaWire(bootstrap) as connection:
        yield connection


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """Yields one node of the Kafka with which Klamm is compared."""
    with running_kafka(tmp_path_factory.mktemp("apache-kafka")) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def klamm_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KlammProcess]:
    """Yields one node of Klamm with the settings of `apache_kafka`."""
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with running_cluster(tmp_path_factory.mktemp("klamm-node"), settings) as klamm:
        yield klamm


@pytest.fixture
def name() -> str:
    """Returns a name for a topic, group or transactional id that no other test has."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def wait_until_known(bootstrap: str) -> Callable[[str], None]:
    """Any broker answers a client, and each learns of a topic a moment after it was created: waits for the last one."""
    return lambda topic: wait_until_everywhere(bootstrap, topic, exists=True)


@pytest.fixture(autouse=True, scope="module")
def _leaves_nothing() -> None:
    """Replaces the check after each file, because all files share servers here. The run as a whole leaves nothing
    behind."""


@pytest.fixture(autouse=True)
def clients_leave_their_sockets_behind() -> Iterator[None]:
    """Collects the sockets that other projects' clients leave open, so that they do not fail the next test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
