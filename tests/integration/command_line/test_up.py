"""Tests how `klamm up` starts, why it refuses, and how it stops."""

from __future__ import annotations

import contextlib
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from tests.support import klamm_without_override
from tests.support.cli_runner import KlammCommand
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.ports import free_ports
from tests.support.waiting import patience

LONG_GRACE = {"shutdown.grace.ms": "3600000"}
"""The grace time of a server that waits for open calls. It is longer than the test waits."""
CANNOT_START = 1


def up(*arguments: object, python: tuple[str, ...] = ("-m", "klamm")) -> subprocess.CompletedProcess[str]:
    """Runs a `klamm up` that must end by itself."""
    command = [sys.executable, *python, "up", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=patience(), check=False)


def refusal(*arguments: object, **options: tuple[str, ...]) -> str:
    """Returns the single line in which `klamm up` refuses to start."""
    ended = up(*arguments, **options)
    assert ended.returncode == CANNOT_START, ended
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("klamm: ")
    return line


def test_a_port_in_use_is_named(tmp_path):
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        line = refusal("--data-dir", tmp_path, "--port", port)
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in line
    assert "--port" in line


@pytest.mark.parametrize("host", ["203.0.113.5", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_named(tmp_path, host):
    assert f"cannot listen on {host}:" in refusal("--data-dir", tmp_path, "--port", 0, "--host", host)


def test_a_data_directory_in_use_is_named(tmp_path):
    with running_cluster(tmp_path) as cluster:
        line = refusal("--data-dir", cluster.data_dir, "--port", 0)
    assert str(cluster.data_dir) in line
    assert "in use by another process" in line


def test_a_data_directory_of_another_cluster_is_named(tmp_path):
    data_dirs = []
    for name in ("one", "two"):
        with running_cluster(tmp_path / name) as cluster:
            data_dirs.append(cluster.data_dir)
    mixed = tmp_path / "mixed"
    shutil.copytree(data_dirs[0] / "broker", mixed / "broker")
    shutil.copytree(data_dirs[1] / "controller", mixed / "controller")
    line = refusal("--data-dir", mixed, "--port", 0)
    assert "data directory of another cluster" in line
    assert str(mixed / "broker") in line


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    line = refusal("--data-dir", tmp_path / "file" / "data", "--port", 0)
    assert f"{tmp_path}/file/data" in line
    assert "Not a directory" in line


def test_a_data_directory_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "data").mkdir(mode=0o555)
    line = refusal("--data-dir", tmp_path / "data", "--port", 0, python=(klamm_without_override.__file__,))
    assert "Permission denied" in line
    assert f"{tmp_path}/data" in line


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("log.segment.byte=1", "unknown setting 'log.segment.byte'; did you mean log.segment.bytes"),
        ("frobnicate=1", "unknown setting 'frobnicate'"),
        ("log.segment.bytes=many", "log.segment.bytes: 'many' is not valid, expected a whole number"),
        ("log.segment.bytes=1", "log.segment.bytes"),
        ("log.level=LOUD", "expected one of DEBUG, INFO, WARNING, ERROR"),
        ("log.format=xml", "expected one of auto, text, json"),
    ],
)
def test_a_setting_that_is_unknown_or_invalid_is_named(tmp_path, setting, complaint):
    assert complaint in refusal("--data-dir", tmp_path / "data", "--port", 0, "--set", setting)
    assert not (tmp_path / "data").exists()


def test_without_the_server_extra_it_says_what_to_install(tmp_path):
    without_uvloop = "import sys; sys.modules['uvloop'] = None; from klamm_cli.main import main; main()"
    assert "pip install 'klamm[server]'" in refusal("--data-dir", tmp_path, python=("-c", without_uvloop))


def test_port_0_picks_a_free_port_and_prints_it(tmp_path):
    command = [sys.executable, "-m", "klamm", "up", "--data-dir", str(tmp_path / "data"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            ready = re.fullmatch(
                r"klamm is ready at (127\.0\.0\.1:\d+), Kafka clients at 127\.0\.0\.1:\d+, data in (.*)\n",
                process.stdout.readline(),
            )
            assert ready
            assert pathlib.Path(ready[2]) == tmp_path / "data"
            assert KlammCommand(ready[1]).ok("topics", "list", "--json").document == []
        finally:
            process.terminate()
    assert process.returncode == 0


@pytest.mark.parametrize("with_kafka", [True, False])
def test_up_prints_the_addresses_that_the_setting_listeners_chose(tmp_path, with_kafka):
    grpc, kafka, unused = free_ports(range(3))
    listeners = f"GRPC://127.0.0.1:{grpc}" + (f",PLAINTEXT://localhost:{kafka}" if with_kafka else "")
    arguments = ["--data-dir", str(tmp_path / "data"), "--set", f"listeners={listeners}", "--kafka-port", str(unused)]
    # The port of the option is taken, but it is not used.
    with (
        contextlib.closing(socket.create_server(("127.0.0.1", unused))),
        subprocess.Popen(
            [sys.executable, "-m", "klamm", "up", *arguments], stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        try:
            kafka_clients = f", Kafka clients at localhost:{kafka}" if with_kafka else ""
            ready = f"klamm is ready at 127.0.0.1:{grpc}{kafka_clients}, data in {tmp_path / 'data'}\n"
            assert process.stdout.readline() == ready
            assert KlammCommand(f"127.0.0.1:{grpc}").ok("topics", "list", "--json").document == []
        finally:
            process.terminate()
    assert process.returncode == 0


def test_up_listens_on_every_interface_and_prints_the_advertised_addresses(tmp_path):
    grpc, kafka = free_ports(range(2))
    advertised = f"GRPC://127.0.0.1:{grpc},KAFKA://localhost:{kafka}"
    arguments = ["--data-dir", tmp_path / "data", "--host", "0.0.0.0", "--port", grpc, "--kafka-port", kafka]
    command = [sys.executable, "-m", "klamm", "up", *map(str, arguments), "--set", f"advertised.listeners={advertised}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith(f"klamm is ready at 127.0.0.1:{grpc}, Kafka clients at localhost:{kafka}, data in ")
        finally:
            process.terminate()
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("size", "setting", "complaint"),
    [
        (1, "listeners=GRPC://127.0.0.1:0", "listeners: GRPC://127.0.0.1:0 is not valid, expected a port other than 0"),
        (2, "listeners=GRPC://127.0.0.1:5001", "listeners: 'GRPC://127.0.0.1:5001' is not valid, because 4 processes"),
        (2, "advertised.listeners=GRPC://a:1", "advertised.listeners: 'GRPC://a:1' is not valid, because 4 processes"),
        (2, "log.dirs=/x", "log.dirs: '/x' is not valid, because 2 processes would share it, expected --data-dir"),
    ],
)
def test_a_setting_that_servers_cannot_share_is_refused(tmp_path, size, setting, complaint):
    line = refusal("--data-dir", tmp_path / "data", "--port", 0, "--brokers", size, "--set", setting)
    assert complaint in line
    assert "--data-dir" in line or "--port" in line
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_up_cleanly_and_records_and_offsets_survive(tmp_path, number):
    cluster = KlammProcess(tmp_path, LONG_GRACE)
    cluster.start()
    klamm = KlammCommand(cluster.bootstrap)
    klamm.ok("topics", "create", "kept", "--partitions", 2)
    klamm.ok("produce", "kept", stdin="a\nb\n")
    klamm.ok("consume", "kept", "--group", "readers", "--from", "beginning", "--exit")
    assert cluster.end(number) == 0
    assert cluster.log_path.read_text() == ""
    assert (cluster.data_dir / "broker" / ".kafka_cleanshutdown").exists()
    cluster.start()
    assert not (cluster.data_dir / "broker" / ".kafka_cleanshutdown").exists()
    try:
        assert sorted(klamm.ok("consume", "kept", "--from", "beginning", "--exit").out.split()) == ["a", "b"]
        assert klamm.ok("consume", "kept", "--group", "readers", "--exit").out == ""
    finally:
        assert cluster.stop() == 0


def test_a_waiting_consumer_does_not_keep_up_from_stopping(tmp_path):
    with running_cluster(tmp_path, LONG_GRACE) as cluster:
        KlammCommand(cluster.bootstrap).ok("topics", "create", "quiet")
        command = [sys.executable, "-m", "klamm", "consume", "quiet", "--group", "g", "-b", cluster.bootstrap]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as consumer:
            try:
                KlammCommand(cluster.bootstrap).ok("consume", "quiet", "--group", "other", "--exit")
                assert cluster.stop() == 0
            finally:
                consumer.kill()


def test_up_starts_with_little_cpu_time_and_uses_little_cpu_and_memory_when_idle(tmp_path):
    begin = time.monotonic()
    with running_cluster(tmp_path) as cluster:
        ready_s = time.monotonic() - begin
        process = psutil.Process(cluster.pid)
        start_cpu_s = sum(process.cpu_times()[:2])
        # The CPU seconds until readiness do not depend on the load of this machine, but the wall-clock time does.
        assert start_cpu_s < 3
        # On a busy machine, the work that the start left behind takes a while.
        idle_deadline_s, busy = time.monotonic() + patience(), 1.0
        while busy >= 0.02 and time.monotonic() < idle_deadline_s:
            before_s, begin = sum(process.cpu_times()[:2]), time.monotonic()
            time.sleep(3)
            busy = (sum(process.cpu_times()[:2]) - before_s) / (time.monotonic() - begin)
        resident_mb = process.memory_info().rss / 1e6
    print(f"ready after {ready_s:.2f} s ({start_cpu_s:.2f} s of CPU); idle: {busy:.1%} of a core, {resident_mb:.0f} MB")
    assert busy < 0.02
    assert resident_mb < 100
