"""Tests `klamm-broker --processes`: the brokers of one host start, serve, restart and stop as one server."""

from __future__ import annotations

import contextlib
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from klamm import Admin
from klamm.admin import NewTopic
from klamm.health import check
from tests.support import certificates
from tests.support.cli_runner import KlammCommand
from tests.support.controller_quorum import HOST, Quorum, quorum_processes
from tests.support.ports import free_ports
from tests.support.server_process import ServerProcess
from tests.support.waiting import patience, wait_until

HEALTH_STEP = 9
PORT_STEP = 10


class BrokerHost:
    """`klamm-broker --processes` on a port of its own."""

    def __init__(
        self, directory: pathlib.Path, controllers: str, first_id: int, processes: str, **settings: str
    ) -> None:
        port, *_ = free_ports([0, HEALTH_STEP, PORT_STEP, 2 * PORT_STEP])
        self.health_port = port + HEALTH_STEP
        self.bootstrap = f"{HOST}:{port}"
        own = {
            "listeners": f"GRPC://{HOST}:{port}",
            "controller.quorum.bootstrap.servers": controllers,
            "log.dirs": str(directory / f"host-{first_id}"),
            **{name.replace("_", "."): text.format(port=port) for name, text in settings.items()},
        }
        arguments = ["--processes", processes]
        self.server = ServerProcess("klamm_broker", first_id, directory, own, arguments=arguments)

    @property
    def log(self) -> str:
        return self.server.log_path.read_text()

    def health(self) -> str:
        with contextlib.suppress(OSError):
            return check(HOST, self.health_port, timeout_s=patience())
        return "DOWN"

    def children(self) -> dict[int, psutil.Process]:
        """Returns the brokers by the numbers of their processes."""
        found = {}
        for child in psutil.Process(self.server.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if match := re.search(r"--process=(\d+)/", " ".join(child.cmdline())):
                    found[int(match[1])] = child
        return found

    def wait_serving(self) -> None:
        wait_until(lambda: self.health() == "SERVING")


def _controllers(cluster: Quorum) -> str:
    return ",".join(cluster.addresses())


@contextlib.contextmanager
def hosts(directory: pathlib.Path, *processes: str, **settings: str) -> Iterator[list[BrokerHost]]:
    """Starts a controller, and one host for each of `processes`. Their brokers have the ids from 100, 200 ... on."""
    with quorum_processes(directory, size=1) as cluster:
        cluster.controllers[1].start()
        found = [
            BrokerHost(
                directory, _controllers(cluster), 100 * number, process, broker_rack=f"dc1/host{number}", **settings
            )
            for number, process in enumerate(processes, 1)
        ]
        try:
            for host in found:
                host.server.start()
            for host in found:
                host.wait_serving()
            yield found
        finally:
            for host in found:
                host.server.abandon()


def test_the_processes_of_a_host_are_one_domain_and_one_line_and_stop_in_turn(tmp_path: pathlib.Path) -> None:
    with hosts(tmp_path, "2", "2") as (first, second):
        with Admin(bootstrap_servers=first.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 8, 2)])
            partitions = admin.describe_topics(["t"])["t"].partitions
        assert {frozenset(node_id // 100 for node_id in partition.replicas) for partition in partitions} == {
            frozenset({1, 2})
        }
        assert {node_id for partition in partitions for node_id in partition.replicas} == {100, 101, 200, 201}

        status = KlammCommand(first.bootstrap)("cluster", "status")
        lines = [line.split()[:4] for line in status.out.splitlines() if "dc1/" in line]
        assert lines == [["100-101", HOST, "dc1/host1", "live"], ["200-201", HOST, "dc1/host2", "live"]]

        children = first.children()
        assert first.server.end(signal.SIGTERM) == 0
        assert not any(child.is_running() for child in children.values())
        with Admin(bootstrap_servers=second.bootstrap) as admin:
            leaders = {partition.leader for partition in admin.describe_topics(["t"])["t"].partitions}
        assert leaders <= {200, 201}, "the brokers handed all leaderships over"
    assert (tmp_path / "host-100-2" / "meta.properties").exists()


def test_a_broker_that_dies_is_restarted_and_the_host_serves_again(tmp_path: pathlib.Path) -> None:
    with hosts(tmp_path, "2") as (host,):
        victim = host.children()[2]
        victim.kill()
        wait_until(lambda: "broker 101 ended with status=-9 and restarts in 1 s" in host.log)
        wait_until(lambda: host.children().get(2) not in (None, victim))
        wait_until(lambda: "broker 101 serves again" in host.log)
        host.wait_serving()
        host.server.signal(signal.SIGKILL)
        children = list(host.children().values())
        host.server.wait()
        wait_until(lambda: not any(child.is_running() and child.status() != "zombie" for child in children))


def test_the_exit_status_is_that_of_the_worst_process(tmp_path: pathlib.Path) -> None:
    with quorum_processes(tmp_path, size=1) as cluster:
        cluster.controllers[1].start()
        host = BrokerHost(tmp_path, _controllers(cluster), 100, "2")
        (tmp_path / "host-100-2").write_text("in the way")
        host.server.start()
        assert host.server.wait() == 1
        assert "broker 101 ended during startup" in host.log
        assert str(tmp_path / "host-100-2") in host.log


def test_the_health_of_a_secured_host_is_found_with_its_own_certificate(tmp_path: pathlib.Path) -> None:
    stores = certificates.write_stores(tmp_path / "stores", certificates.server("host"))
    tls = {**stores.settings(), "ssl.client.auth": "required"}
    port = free_ports([0])[0]
    listeners = {"listeners": f"GRPC_SSL://localhost:{port}", "metadata.log.dir": str(tmp_path / "controller")}
    controller = ServerProcess("klamm_controller", 1, tmp_path, {**listeners, **tls})
    controller.start()
    named = {name.replace(".", "_"): text for name, text in tls.items()}
    host = BrokerHost(tmp_path, f"localhost:{port}", 100, "2", listeners="GRPC_SSL://localhost:{port}", **named)
    try:
        host.server.start()
        host.wait_serving()
        assert len(host.children()) == 2
    finally:
        host.server.abandon()
        controller.abandon()


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (("--processes", "0"), 2, "argument --processes: '0' is not valid, expected a number from 1 to 256, or auto"),
        (("--processes", "some"), 2, "argument --processes: 'some' is not valid, expected a number from 1 to 256"),
        (("--processes", "2", "--health-port", "x"), 2, "argument --health-port: 'x' is not valid, expected a number"),
        (("--processes", "2", "--set", "listeners=GRPC://localhost:0"), 1, "listeners: GRPC://localhost:0 is not"),
    ],
)
def test_bad_values_are_refused_with_what_was_expected(
    tmp_path: pathlib.Path, arguments: tuple[str, ...], status: int, complaint: str
) -> None:
    settings = ("node.id=1", "controller.quorum.bootstrap.servers=localhost:9093", f"log.dirs={tmp_path / 'data'}")
    sets = [word for setting in settings for word in ("--set", setting)]
    refused = subprocess.run(
        [sys.executable, "-m", "klamm_broker", *sets, *arguments],
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )
    assert refused.returncode == status
    assert complaint in refused.stderr
    assert not (tmp_path / "data").exists()
