"""Tests Kafka Connect in distributed mode against the Kafka listener. It uses groups of workers, compacted internal
topics, a source that writes in transactions, and a sink that is a consumer group."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import java_programs
from tests.support.ports import free_port
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.clients]
TIMEOUT_S = 120
LINES = 500


class Worker:
    """A run of a distributed worker. It keeps its REST port over restarts."""

    def __init__(self, directory: Path, bootstrap: str, name: str) -> None:
        self.port = free_port()
        self._config = directory / "worker.properties"
        self._log = directory / "connect.log"
        properties = {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "config.storage.topic": f"{name}-configs",
            "offset.storage.topic": f"{name}-offsets",
            "offset.storage.partitions": "3",
            "status.storage.topic": f"{name}-status",
            "status.storage.partitions": "2",
            "exactly.once.source.support": "enabled",
            "offset.flush.interval.ms": "500",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
            "listeners": f"HTTP://127.0.0.1:{self.port}",
            "plugin.discovery": "service_load",
        }
        self._config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                java_programs.connect_command("org.apache.kafka.connect.cli.ConnectDistributed", str(self._config)),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.until(lambda: self.ask("GET", "/connectors") is not None)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(TIMEOUT_S)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Returns the answer, or None while the worker cannot answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def until(self, is_so: Callable[[], bool]) -> None:
        wait_until(is_so, lambda: self._log.read_text()[-8_000:], timeout_s=TIMEOUT_S, pause_s=0.2)


@pytest.mark.behaviour("Kafka Connect", "file source to file sink, distributed, exactly-once source, worker killed")
def test_lines_go_from_file_to_file_over_a_crash_of_the_worker(bootstrap: str, name: str, tmp_path: Path) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    lines = [f"line {number}" for number in range(LINES)]
    half = LINES // 2
    source.write_text("".join(f"{line}\n" for line in lines[:half]))
    worker = Worker(tmp_path, bootstrap, name)

    def written() -> list[str]:
        return target.read_text().splitlines() if target.exists() else []

    def configure(connector: str, **config: str) -> None:
        worker.until(lambda: worker.ask("PUT", f"/connectors/{connector}/config", config) is not None)

    try:
        worker.start()
        configure(
            f"{name}-source",
            **{
                "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
                "file": str(source),
                "topic": name,
                "topic.creation.default.replication.factor": "3",
                "topic.creation.default.partitions": "1",
            },
        )
        configure(
            f"{name}-sink",
            **{
                "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
                "file": str(target),
                "topics": name,
                "consumer.override.auto.offset.reset": "earliest",
            },
        )
        worker.until(lambda: len(set(written())) >= half)
        worker.kill()
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines[half:])
        worker.start()
        worker.until(lambda: len(set(written())) == LINES)
        states = [worker.ask("GET", f"/connectors/{name}-{end}/status") for end in ("source", "sink")]
    finally:
        worker.kill()
    assert [state["tasks"][0]["state"] for state in states] == ["RUNNING", "RUNNING"], states
    # The sink may write again what it had not committed; the source writes every line once and in order.
    assert list(dict.fromkeys(written())) == lines
