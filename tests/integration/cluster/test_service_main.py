"""Tests a service process from outside: its exit status and its output on stderr."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import patience

SERVICE = """
import asyncio, sys
from klamm.errors import KlammError
from klamm_server.config.server_config import ServiceConfig
from klamm_server.main import main

class Service:
    auditors = ()

    def __init__(self, config, tls):
        pass
    async def open(self):
        if MODE == "lock held":
            raise KlammError("data is locked by another process: stop it or choose other log.dirs")
        if MODE == "no permission":
            raise PermissionError(13, "Permission denied", "/data")
        assert MODE != "broken invariant", "end offset 5 < 7"
    def register(self, rpc):
        pass
    async def start(self, endpoints):
        print("starting", *endpoints[0].address, flush=True)
        if MODE == "no controller":
            await asyncio.Event().wait()
        print("started", flush=True)
    def loaded_image(self):
        return None

    async def wait_serving(self, wanted):
        if not wanted:
            await asyncio.Event().wait()
    async def stop(self):
        print("stopped", flush=True)

MODE = sys.argv.pop(1)
sys.exit(main("service", ServiceConfig, Service))
"""


def _start(mode: str, *arguments: str, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SERVICE, mode, *arguments],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def _run(mode: str, *arguments: str) -> tuple[int, str, str]:
    with _start(mode, *arguments) as process:
        stdout, stderr = process.communicate(timeout=patience())
    return process.returncode, stdout, stderr


OK = ("--set", "node.id=1", "--set", "listeners=GRPC://localhost:0")


def test_logs_are_json_unless_they_go_to_a_terminal() -> None:
    """A `log.format` other than auto has the same output for pipes and terminals."""
    for setting, (piped, shown) in {"auto": (True, False), "json": (True, True), "text": (False, False)}.items():
        arguments = ("serve", *OK, "--set", f"log.format={setting}")
        assert _are_json(_said_to_a_pipe(*arguments)) == piped, setting
        assert _are_json(_said_to_a_terminal(*arguments)) == shown, setting


def _said_to_a_pipe(*arguments: str) -> str:
    with _start(*arguments) as process:
        return _said_until_started(process)


def _said_to_a_terminal(*arguments: str) -> str:
    ours, its = pty.openpty()
    with _start(*arguments, stderr=its) as process, os.fdopen(ours, "rb") as terminal:
        os.close(its)
        _said_until_started(process)
        said = b""
        with contextlib.suppress(OSError):  # Linux reports a terminal without other users as this error
            while part := terminal.read1():
                said += part
    return said.decode()


def _said_until_started(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    while process.stdout.readline() != "started\n":
        pass
    process.terminate()
    _, stderr = process.communicate(timeout=patience())
    return stderr or ""


def _are_json(text: str) -> bool:
    """Returns True if all lines are JSON, and False if none is."""
    lines = text.splitlines()
    assert lines
    starts = {line.startswith("{") for line in lines}
    assert len(starts) == 1, lines
    for line in lines if starts == {True} else ():
        assert json.loads(line)["node"] == "service-1"
    return starts == {True}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_service_gracefully(number: signal.Signals) -> None:
    with _start("serve", *OK) as process:
        assert process.stdout is not None
        host, port = process.stdout.readline().split()[1:]
        assert (host, int(port) > 0) == ("localhost", True)
        assert process.stdout.readline() == "started\n"
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=patience())
    assert (process.returncode, stdout) == (0, "stopped\n")
    assert "config node.id=1 (command line)" in stderr


def test_a_signal_ends_a_start_that_waits_for_the_controller() -> None:
    with _start("no controller", *OK) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        stdout, _ = process.communicate(timeout=patience())
    assert (process.returncode, stdout) == (0, "stopped\n")


def test_a_bad_configuration_is_reported_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "service.properties"
    path.write_text("node.id=1\nlistener=GRPC://localhost:0\n")
    assert _run("serve", "--config", str(path)) == (
        1,
        "",
        "klamm: unknown configuration listener; did you mean listeners?\n",
    )


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "service.properties"
    path.write_text("node.id=1\n")
    status, _, stderr = _run("serve", "--config", str(path), "--set", "node.id=x")
    assert status == 1
    assert stderr == "klamm: node.id: 'x' is not valid, expected a whole number of 32 bits\n"


def test_the_environment_wins_over_the_file_and_the_command_line_over_both(tmp_path: Path) -> None:
    path = tmp_path / "service.properties"
    path.write_text("node.id=1\nmetrics.port=1\nlog.level=ERROR\n")
    environment = {**os.environ, "KLAMM_METRICS_PORT": "2", "KLAMM_LOG_LEVEL": "WARNING", "KLAMM_BOOTSTRAP": "h:1"}
    shown = _show_config(environment, "--config", str(path), "--set", "log.level=DEBUG")
    assert {"node.id=1 (file)", "metrics.port=2 (environment)", "log.level=DEBUG (command line)"} <= shown
    assert "shutdown.grace.ms=5000" in shown


def test_an_unknown_variable_is_refused_by_name() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVICE, "serve", *OK],
        env={**os.environ, "KLAMM_METRIC_PORT": "2"},
        capture_output=True,
        text=True,
        timeout=patience(),
    )
    assert (done.returncode, done.stderr) == (
        1,
        "klamm: unknown configuration in the environment: KLAMM_METRIC_PORT; did you mean KLAMM_METRICS_PORT?\n",
    )


def _show_config(environment: dict[str, str], *arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", SERVICE, "serve", *arguments, "--show-config"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=patience(),
    )
    assert (done.returncode, done.stderr) == (0, "")
    return set(done.stdout.splitlines())


@pytest.mark.parametrize(
    ("mode", "line"),
    [
        ("lock held", "klamm: data is locked by another process: stop it or choose other log.dirs"),
        ("no permission", "klamm: [Errno 13] Permission denied: '/data'"),
    ],
)
def test_the_reason_for_a_failed_start_is_the_last_line(mode: str, line: str) -> None:
    status, _, stderr = _run(mode, *OK, "--set", "log.level=ERROR")
    assert (status, stderr) == (1, f"{line}\n")


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, _, stderr = _run(
            "serve", "--set", "node.id=1", "--set", f"listeners=GRPC://127.0.0.1:{port}", "--set", "log.level=ERROR"
        )
    assert status == 1
    last_line = stderr.splitlines()[-1]
    assert last_line.startswith(f"klamm: cannot listen on 127.0.0.1:{port}: Address already in use (127.0.0.1:{port})")


def test_a_broken_invariant_is_fatal() -> None:
    status, _, stderr = _run("broken invariant", *OK)
    assert status == 70
    assert "end offset 5 < 7" in stderr
