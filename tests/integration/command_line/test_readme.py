"""The README, followed to the letter: its commands and programs, in order, against a fresh `klamm up`."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

from klamm.config import DEFAULT_PORT
from tests.support.cli_runner import KlammCommand
from tests.support.klamm_process import running_cluster
from tests.support.ports import free_port
from tests.support.waiting import patience

ROOT = pathlib.Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()


def blocks(heading: str, language: str) -> list[str]:
    """The code blocks of a section."""
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    assert section, f"README.md has no section {heading!r}"
    found = re.findall(rf"^```{language}\n(.*?)^```", section[1], re.MULTILINE | re.DOTALL)
    assert found, f"the section {heading!r} has no {language} block"
    return found


@pytest.fixture
def cluster(tmp_path):
    with running_cluster(tmp_path / "cluster") as process:
        yield process


def run(cluster, command: list[str], directory: pathlib.Path, text: str = "") -> str:
    """Runs it where it writes nothing into the project; returns its output."""
    environment = {
        **os.environ,
        "KLAMM_BOOTSTRAP": cluster.bootstrap,
        "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    ended = subprocess.run(
        command,
        input=text,
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def on_its_port(cluster, program: str) -> str:
    """The default port may be somebody's own cluster."""
    assert f"localhost:{DEFAULT_PORT}" in program
    return program.replace(f"localhost:{DEFAULT_PORT}", cluster.bootstrap)


def test_the_command_line(cluster, tmp_path):
    (script,) = blocks("The command line", "")
    # Each command ends the shell when it fails, and says which it was.
    output = run(cluster, ["bash", "-e", "-u", "-x", "-o", "pipefail"], tmp_path, script)
    assert "alice\t3 apples" in output
    assert re.search(r"^orders +0 +1 +1 +1 +0 +\d", output, re.MULTILINE)
    assert re.search(r"^retention\.ms +604800000 +DYNAMIC_TOPIC", output, re.MULTILINE)
    assert output.endswith("deleted billing\ndeleted orders\n")


def test_the_python_client(cluster, tmp_path):
    synchronous, transactional, asynchronous = blocks("The Python client", "python")
    output = run(cluster, [sys.executable, "-W", "error", "-"], tmp_path, on_its_port(cluster, synchronous))
    assert "topic='clicks'" in output
    assert "b'alice' b'/home'" in output
    run(cluster, [sys.executable, "-W", "error", "-"], tmp_path, on_its_port(cluster, transactional))
    read = ("-m", "klamm", "consume", "shouts", "--from", "beginning", "--exit", "--isolation-level", "read_committed")
    assert run(cluster, [sys.executable, *read], tmp_path) == "/HOME\n"
    output = run(cluster, [sys.executable, "-W", "error", "-"], tmp_path, on_its_port(cluster, asynchronous))
    assert "topic='clicks'" in output
    assert "b'/home'" in output or "b'/pricing'" in output


def test_kafka_clients(cluster, tmp_path):
    (program,) = blocks("Kafka clients", "python")
    assert "localhost:9092" in program
    run(cluster, [sys.executable, "-"], tmp_path, program.replace("localhost:9092", cluster.kafka_bootstrap))
    read = ("-m", "klamm", "consume", "clicks", "--from", "beginning", "--exit", "--key")
    assert run(cluster, [sys.executable, *read], tmp_path) == "alice\t/home\n"


def test_the_services_apart(tmp_path):
    """Each command of the block is a service; only their ports are not the default ones."""
    (script,) = blocks("Server settings, services apart", "")
    controller, broker, coordinator = free_port(), free_port(), free_port()
    services = []
    try:
        for line, port in zip(script.splitlines(), (controller, broker, coordinator), strict=True):
            python, *arguments = line.replace("localhost:9093", f"localhost:{controller}").split()
            assert python == "python"
            with (tmp_path / f"{port}.log").open("w") as log:
                command = [sys.executable, *arguments, "--set", f"listeners=GRPC://localhost:{port}"]
                services.append(subprocess.Popen(command, cwd=tmp_path, stderr=log))
        klamm = KlammCommand(f"localhost:{broker}")
        klamm.ok("topics", "create", "apart", "--timeout", int(patience()))
        klamm.ok("produce", "apart", stdin="a\n")
        assert klamm.ok("consume", "apart", "--group", "g", "--from", "beginning", "--exit").out == "a\n"
    finally:
        for service in reversed(services):
            service.terminate()
            assert service.wait(patience()) == 0


@pytest.mark.slow
@pytest.mark.spark
def test_the_spark_pipeline(cluster, tmp_path):
    run(cluster, ["klamm", "produce", "clicks"], tmp_path, "/docs\n/docs\nno page\n/blog\n")
    (program,) = blocks("Spark", "python")
    program = on_its_port(cluster, program).replace("/tmp/clicks-checkpoint", str(tmp_path / "checkpoint"))
    run(cluster, [sys.executable, "-"], tmp_path, program)
    output = run(cluster, ["klamm", "consume", "page-views", "--from", "beginning", "--exit", "--key"], tmp_path)
    assert sorted(line.partition("\t")[0] for line in output.splitlines()) == ["/blog", "/docs", "/docs"]
