"""Tests `klamm up` with several processes: all serve, restart after a kill, and end with the command."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from klamm_embedded.ports import KAFKA_PORT_STEP
from tests.support.cli_runner import KlammCommand
from tests.support.ports import free_ports
from tests.support.waiting import patience, wait_until

SIZE = ("--controllers", "3", "--brokers", "3", "--coordinators", "2")


class Up:
    """A running `klamm up`."""

    def __init__(self, process: subprocess.Popen[str], bootstrap: str) -> None:
        self.process = process
        self.bootstrap = bootstrap
        self.klamm = KlammCommand(bootstrap)

    def children(self) -> dict[str, psutil.Process]:
        """Returns the command's child processes, by `<package> <node.id>`."""
        found = {}
        for child in psutil.Process(self.process.pid).children():
            try:
                line = " ".join(child.cmdline())
            except psutil.NoSuchProcess:  # a zombie, or ended in between
                continue
            if match := re.search(r"-m (klamm_\w+).*--set=node\.id=(\d+)", line):
                found[f"{match[1]} {match[2]}"] = child
        return found


@contextlib.contextmanager
def up(data_dir: pathlib.Path, *arguments: str) -> Iterator[Up]:
    # `--port 0` does not work, because another program may take a port that `up` found free before a server binds it.
    port, *_, kafka_port = free_ports([*range(9), 8 + KAFKA_PORT_STEP, 8 + 2 * KAFKA_PORT_STEP])[:9]
    ports = ("--port", str(port), "--kafka-port", str(kafka_port))
    command = [sys.executable, "-m", "klamm", "up", "--data-dir", str(data_dir), *ports, *arguments]
    with (data_dir.with_suffix(".log")).open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        ready = re.fullmatch(
            r"klamm is ready at (\S+), Kafka clients at \S+, data in (.*)\n", process.stdout.readline()
        )
        assert ready, data_dir.with_suffix(".log").read_text()
        yield Up(process, ready[1])
    finally:
        process.terminate()
        process.wait(patience())
        process.stdout.close()


def ended(processes) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


def voters(klamm):
    replicas = klamm.ok("cluster", "quorum", "--json").document["replicas"]
    return {replica["id"]: replica["role"] for replica in replicas if replica["kind"] == "controller"}


def test_a_dry_run_changes_no_voters(tmp_path):
    with up(tmp_path / "data", "--controllers", "3") as cluster:
        klamm = cluster.klamm
        before = voters(klamm)
        leaving = next(number for number, role in before.items() if role == "follower")
        remove, add = (
            ("cluster", name, "--controller-id", leaving) for name in ("remove-controller", "add-controller")
        )
        assert klamm.ok(*remove, "--dry-run").out.startswith(f"controller {leaving} would vote no more, directory ")
        assert klamm.ok(*remove, "--dry-run", "--json").document["validate_only"]
        assert voters(klamm) == before
        assert klamm.ok(*remove, "--json").document["removed"] == leaving
        wait_until(lambda: voters(klamm).get(leaving) == "observer")
        assert klamm.ok(*add, "--dry-run").out.startswith(f"controller {leaving} would vote, directory ")
        assert voters(klamm)[leaving] == "observer"
        assert klamm.ok(*add, "--json").document["added"] == leaving
        assert voters(klamm)[leaving] == "follower"


def test_up_restarts_a_killed_broker_and_ends_all_processes_with_the_command(tmp_path):
    data_dir = tmp_path / "data"
    with up(data_dir, *SIZE, "--log-level", "INFO") as cluster:
        assert len(cluster.bootstrap.split(",")) == 3
        children = cluster.children()
        assert sorted(children) == [
            *(f"klamm_broker {node_id}" for node_id in (1, 2, 3)),
            *(f"klamm_controller {node_id}" for node_id in (1, 2, 3)),
            *(f"klamm_coordinator {node_id}" for node_id in (1, 2)),
        ]
        cluster.klamm.ok("topics", "create", "t")
        victim = children["klamm_broker 2"]
        victim.send_signal(signal.SIGKILL)
        wait_until(lambda: cluster.children().get("klamm_broker 2") not in (None, victim))
        wait_until(lambda: "broker 2 serves again" in data_dir.with_suffix(".log").read_text())
        assert "broker 2 ended with status=-9 and restarts in 1 s" in data_dir.with_suffix(".log").read_text()
        children = cluster.children()
        cluster.process.terminate()
        assert cluster.process.wait(patience()) == 0
        assert ended(children.values())
    # The same cluster starts again with other ports.
    with up(data_dir, *SIZE) as cluster:
        assert cluster.klamm.ok("topics", "list", "--json").document[0]["topic"] == "t"


def test_auto_starts_a_broker_for_each_core_of_the_affinity_in_one_failure_domain(tmp_path):
    before = os.sched_getaffinity(0)
    cores = sorted(before)[:2]
    os.sched_setaffinity(0, cores)  # which the command inherits
    try:
        with up(tmp_path / "data", "--brokers", "auto", "--coordinators", "2") as cluster:
            os.sched_setaffinity(0, before)
            assert sum(name.startswith("klamm_broker") for name in cluster.children()) == len(cores)
            brokers = cluster.klamm.ok("cluster", "status", "--json").document["brokers"]
            assert {broker["rack"] for broker in brokers} == ({socket.gethostname()} if len(cores) > 1 else {None})
    finally:
        os.sched_setaffinity(0, before)


def test_no_process_outlives_a_killed_command(tmp_path):
    with up(tmp_path / "data", "--brokers", "2") as cluster:
        children = cluster.children()
        os.kill(cluster.process.pid, signal.SIGKILL)
        wait_until(lambda: ended(children.values()))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--controllers", "2"), "expected 1, 3 or 5"),
        (("--brokers", "2", "--set", "log.segment.byte=1"), "unknown setting 'log.segment.byte'"),
    ],
)
def test_an_invalid_up_command_is_refused_and_creates_no_data_directory(tmp_path, arguments, complaint):
    command = [sys.executable, "-m", "klamm", "up", "--data-dir", str(tmp_path / "data"), "--port", "0", *arguments]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=patience(), check=False)
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert complaint in refused.stderr
    assert not (tmp_path / "data").exists()


def test_up_fails_and_names_the_reason_when_a_process_cannot_start(tmp_path):
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    (data_dir / "broker-2").write_text("in the way")
    command = [sys.executable, "-m", "klamm", "up", "--data-dir", str(data_dir), "--port", "0", "--brokers", "2"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=patience(), check=False)
    assert refused.returncode == 1
    assert "broker 2 ended during startup" in refused.stderr
    assert str(data_dir / "broker-2") in refused.stderr
