"""Tests that the server files of Apache Kafka start Klamm's servers, which form a cluster.

A file does not set the port of the listener that Klamm adds by default. So the servers of a test have a loopback
address of their own, where no other process listens.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from klamm import Admin, Consumer, NewTopic, Producer
from tests.support.kafka_stock_files import STOCK_FILES, as_text
from tests.support.waiting import patience, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has 127.0.0.0/8 at its loopback interface")

TOPIC = "orders"


def own_address() -> str:
    """Returns a loopback address that no other process of the tests uses."""
    pid = os.getpid()
    return f"127.{1 + (pid >> 16) % 250}.{(pid >> 8) % 256}.{1 + pid % 250}"


def write_file(folder: Path, name: str, host: str) -> Path:
    """Writes one of Kafka's files with an address and a folder of the machine, as an operator would change it."""
    moved = {
        key: text.replace("localhost", host).replace("://:", f"://{host}:") for key, text in STOCK_FILES[name].items()
    }
    path = folder / name
    path.write_text(as_text({**moved, "log.dirs": str(folder / "logs")}))
    return path


@pytest.mark.parametrize(
    ("controller_file", "broker_file"),
    [("server.properties", "server.properties"), ("controller.properties", "broker.properties")],
)
def test_servers_with_kafkas_own_configuration_files_form_a_cluster(
    tmp_path: Path, controller_file: str, broker_file: str
) -> None:
    host = own_address()
    files = {
        "klamm_controller": write_file(tmp_path, controller_file, host),
        "klamm_broker": write_file(tmp_path, broker_file, host),
        "klamm_coordinator": write_file(tmp_path, broker_file, host),
    }
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((tmp_path / "servers.log").open("w"))
        servers = []
        for package, path in files.items():
            command = [sys.executable, "-m", package, "--config", str(path)]
            # A controller keeps its metadata below the folder where it was started.
            server = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path)
            stack.callback(server.wait, patience())
            stack.callback(server.kill)
            servers.append(server)

        bootstrap = f"{host}:9094"
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, partition_count=1)])
        with Producer(bootstrap_servers=bootstrap) as producer:
            producer.send(TOPIC, b"1").result(patience())
        with Consumer(bootstrap_servers=bootstrap, group_id="billing", auto_offset_reset="earliest") as consumer:
            consumer.subscribe([TOPIC])
            read: list[bytes | None] = []

            def is_read() -> bool:
                read.extend(record.value for records in consumer.poll(100).values() for record in records)
                return bool(read)

            wait_until(is_read)
        assert read == [b"1"]

        for server in reversed(servers):
            server.send_signal(signal.SIGTERM)
            assert server.wait(patience()) == 0, (tmp_path / "servers.log").read_text()
