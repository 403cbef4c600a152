"""Tests a controller process that is killed: all acknowledged changes survive, and the process always starts again."""

from __future__ import annotations

import asyncio
import random
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

from grpc import aio

from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.controller_pb2 import (
    BrokerHeartbeatRequest,
    CreateTopicsRequest,
    DescribeTopicsRequest,
    NewTopic,
    RegisterBrokerRequest,
)
from klamm.wire.v1.controller_rpc import ADMIN, CONTROLLER
from tests.support.raw_stub import RawStub
from tests.support.violation import verdict
from tests.support.waiting import patience, wait_until


class ControllerProcess:
    """A `python -m klamm_controller` process on a directory."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def start(self) -> None:
        command = [sys.executable, "-m", "klamm_controller"]
        wanted = {
            "node.id": "1",
            "listeners": "GRPC://127.0.0.1:0",
            "metadata.log.dir": str(self.directory),
            "log.format": "text",
            "broker.session.timeout.ms": "600000",  # the only broker sends nothing after its first heartbeat
            **self._settings,
        }
        for name, text in wanted.items():
            command += ["--set", f"{name}={text}"]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        lines = []
        for line in self._process.stderr:
            lines.append(line)
            if "ready port=" in line:
                self.port = int(line.rsplit("ready port=", 1)[1].split()[0])
                return
        raise AssertionError("".join(lines))

    def limit_files(self, file_bytes_max: int) -> None:
        """Sets a limit for the controller's files. A write beyond it fails, as on a broken disk."""
        assert self._process is not None
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (file_bytes_max, file_bytes_max))

    def wait(self) -> tuple[int, str]:
        """Waits until the process ends by itself. Returns its exit status and its last output."""
        assert self._process is not None
        process, self._process = self._process, None
        _, said = process.communicate(timeout=patience())
        return process.returncode, said

    def end(self, number: signal.Signals) -> int:
        assert self._process is not None
        process, self._process = self._process, None
        process.send_signal(number)
        process.communicate(timeout=patience())
        return process.returncode


def run_once(directory: Path, **settings: str) -> tuple[int, str]:
    """Runs a process that must not start. Returns its exit status and its last line."""
    process = ControllerProcess(directory, **settings)
    try:
        process.start()
    except AssertionError as error:
        return process.wait()[0], str(error).strip().splitlines()[-1]
    process.end(signal.SIGKILL)
    raise AssertionError("it started")


async def add_broker(port: int) -> None:
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        nodes = RawStub(channel, CONTROLLER)
        registration = RegisterBrokerRequest(
            broker_id=1,
            incarnation_id=random.randbytes(16),
            endpoint=Endpoint(host="localhost", port=9_094),
            log_dir_ids=[b"d" * 16],
        )
        epoch = (await nodes.register_broker(registration)).epoch
        beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, metadata_end_index=epoch + 1)
        assert not (await nodes.broker_heartbeat(beat)).fenced


async def create_until_it_ends(port: int, life: int, acked: set[str]) -> None:
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        admin = RawStub(channel, ADMIN)

        async def writer(number: int) -> None:
            for count in range(100_000):
                name = f"t-{life}-{number}-{count}"
                topic = NewTopic(name=name, partition_count=2, replication_factor=1, configs={"retention.ms": "5"})
                response = await admin.create_topics(CreateTopicsRequest(topics=[topic]))
                assert response.topics[0].error_code == 0, response
                acked.add(name)

        ended = await asyncio.gather(*map(writer, range(4)), return_exceptions=True)
        assert all(isinstance(error, aio.AioRpcError) for error in ended), ended


async def described(port: int) -> dict[str, int]:
    async with aio.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.max_receive_message_length", -1)]) as channel:
        response = await RawStub(channel, ADMIN).describe_topics(DescribeTopicsRequest())
        return {topic.name: len(topic.partitions) for topic in response.topics}


def kill_after(process: ControllerProcess, acked: set[str], count: int) -> None:
    """Kills the controller after `count` acknowledgements, at whatever point of its work it is."""
    wait_until(lambda: len(acked) >= count, pause_s=0.001)
    process.end(signal.SIGKILL)


def test_acknowledged_topics_survive_kill_9(tmp_path):
    rng = random.Random(9)
    acked: set[str] = set()
    process = ControllerProcess(tmp_path, **{"metadata.log.max.record.bytes.between.snapshots": "20000"})
    process.start()
    for life in range(6):
        asyncio.run(add_broker(process.port))
        killer = threading.Thread(target=kill_after, args=(process, acked, len(acked) + rng.randrange(10, 100)))
        killer.start()
        asyncio.run(create_until_it_ends(process.port, life, acked))
        killer.join()
        process.start()
        found = asyncio.run(described(process.port))
        with verdict():
            assert acked <= found.keys()
            assert set(found.values()) <= {2}, "no topic is there in part"
    assert process.end(signal.SIGTERM) == 0


def test_a_failed_write_ends_the_process_and_loses_nothing_acknowledged(tmp_path):
    acked: set[str] = set()
    process = ControllerProcess(tmp_path)
    process.start()
    asyncio.run(add_broker(process.port))
    process.limit_files(60_000)
    asyncio.run(create_until_it_ends(process.port, 0, acked))
    status, said = process.wait()
    assert status == 70
    assert "the metadata log failed: IO error" in said

    roomy = ControllerProcess(tmp_path)
    roomy.start()
    assert acked
    found = asyncio.run(described(roomy.port))
    with verdict():
        assert acked <= found.keys()
    assert roomy.end(signal.SIGTERM) == 0


def test_a_controller_that_cannot_start_prints_the_reason_in_one_line(tmp_path):
    holder = ControllerProcess(tmp_path)
    holder.start()
    try:
        status, line = run_once(tmp_path)
        assert status == 1
        assert line == f"klamm: the data directory {tmp_path} is in use by another process"
    finally:
        assert holder.end(signal.SIGTERM) == 0

    damaged = next(tmp_path.glob("metadata.db/CURRENT"))
    damaged.write_text("MANIFEST-999999\n")
    status, line = run_once(tmp_path)
    assert status == 1
    assert line.startswith(f"klamm: cannot open the metadata log in {tmp_path}")

    status, line = run_once(tmp_path / "other", **{"controller.quorum.voters": "1@a:1,2@b:2,3@c:3"})
    assert status == 1
    assert "cluster.id is not set" in line
