"""Tests `klamm up --secure`: its files let a client in, and a client without them is refused."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import Producer as LibrdkafkaProducer
from confluent_kafka.admin import AdminClient

from klamm_embedded.ports import KAFKA_PORT_STEP, SERVERS_PORT_STEP
from tests.support.cli_runner import KlammCommand
from tests.support.ports import free_ports
from tests.support.waiting import patience

CANNOT_START = 1
UNREACHABLE = 3


class SecuredUp:
    """A running `klamm up --secure`, with the values from its output."""

    def __init__(self, line: str) -> None:
        said = re.fullmatch(
            r"klamm is ready at (\S+), Kafka clients at (\S+), data in \S+; log in with (\S+) \(kcat: -F (\S+)\)\n",
            line,
        )
        assert said, line
        self.bootstrap, self.kafka, self.properties, self.librdkafka = said.groups()
        self.klamm = KlammCommand(self.bootstrap)

    def librdkafka_settings(self) -> dict[str, str]:
        lines = Path(self.librdkafka).read_text().splitlines()
        return {"bootstrap.servers": self.kafka, **dict(line.split("=", 1) for line in lines)}


@contextlib.contextmanager
def up(data_dir: Path, *arguments: str) -> Iterator[SecuredUp]:
    numbers = [*range(9), 8 + KAFKA_PORT_STEP, *range(SERVERS_PORT_STEP, SERVERS_PORT_STEP + 8)]
    ports = free_ports(numbers)
    at = ("--port", str(ports[0]), "--kafka-port", str(ports[8]))
    command = [sys.executable, "-m", "klamm", "up", "--secure", "--data-dir", str(data_dir), *at, *arguments]
    log_path = data_dir.with_suffix(".log")
    with log_path.open("a") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, log_path.read_text()
        yield SecuredUp(line)
    finally:
        process.terminate()
        assert process.wait(patience()) == 0, log_path.read_text()
        process.stdout.close()


@pytest.mark.parametrize("size", [(), ("--brokers", "2")], ids=["one process", "four processes"])
def test_only_a_client_with_the_generated_files_can_use_a_secured_cluster(
    tmp_path: Path, size: tuple[str, ...]
) -> None:
    data_dir = tmp_path / "data"
    with up(data_dir, *size) as cluster:
        known = ("--command-config", cluster.properties)
        assert cluster.klamm("topics", "create", "orders", *known).status == 0
        assert cluster.klamm("produce", "orders", *known, stdin="one\n").status == 0
        producer = LibrdkafkaProducer(cluster.librdkafka_settings())
        producer.produce("orders", b"two")
        assert producer.flush(patience()) == 0

        stranger = cluster.klamm("topics", "list", "--timeout", "10")
        assert (stranger.status, stranger.out) == (UNREACHABLE, "")
        wrong = {**cluster.librdkafka_settings(), "sasl.password": "guessed"}
        with pytest.raises(KafkaException):
            AdminClient(wrong).list_topics(timeout=5)
    with up(data_dir, *size) as cluster:
        consumed = cluster.klamm(
            "consume", "orders", "--from", "beginning", "--exit", "--command-config", cluster.properties
        )
        assert sorted(consumed.out.split()) == ["one", "two"]
    files = [data_dir, *data_dir.rglob("*")]
    assert [file for file in files if file.stat().st_mode & 0o077] == [], "others may use these files"


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat not found: make test installs it")
def test_kcat_connects_to_a_secured_cluster_as_the_readme_describes(tmp_path: Path) -> None:
    with up(tmp_path / "data") as cluster:
        assert cluster.klamm("topics", "create", "orders", "--command-config", cluster.properties).status == 0
        command = ["kcat", "-F", cluster.librdkafka, "-b", cluster.kafka, "-L"]
        listed = subprocess.run(command, capture_output=True, text=True, timeout=patience(), check=True)
        assert 'topic "orders"' in listed.stdout


def test_up_refuses_a_data_directory_that_was_created_in_another_mode(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with up(data_dir):
        pass
    for size in ([], ["--brokers", "2"]):
        command = [sys.executable, "-m", "klamm", "up", "--data-dir", str(data_dir), "--port", "0", *size]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=patience(), check=False)
        assert ended.returncode == CANNOT_START
        assert f"{data_dir} holds a " in ended.stderr
        assert "--secure" in ended.stderr or "in one process" in ended.stderr
