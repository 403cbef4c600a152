"""Three controllers as processes of their own, and a client of them that also plays the brokers.

The brokers are registrations and heartbeats, which is all of them that a controller sees; so nothing but the
controllers is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import grpc
import psutil
from grpc import aio

from bench.servers import free_port
from klamm.errors import ErrorCode
from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.controller_pb2 import (
    BrokerHeartbeatRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeQuorumRequest,
    NewTopic,
    RegisterBrokerRequest,
    ReplicaAssignment,
)
from klamm.wire.v1.controller_rpc import ADMIN, CONTROLLER
from tests.support.raw_stub import RawStub

HOST = "127.0.0.1"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
BROKER_IDS = (1, 2, 3)
TIMEOUT_S = 60.0

_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]


class Controllers:
    """The processes of the controllers, by node.id. They keep their ports and directories over restarts."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.ports = {node_id: free_port() for node_id in (1, 2, 3)}
        self._metrics_ports = {node_id: free_port() for node_id in self.ports}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, node_id: int) -> None:
        """Begins to start it."""
        voters = ",".join(f"{voter}@{HOST}:{port}" for voter, port in self.ports.items())
        settings = {
            "node.id": node_id,
            "listeners": f"GRPC://{HOST}:{self.ports[node_id]}",
            "metadata.log.dir": self.directory / str(node_id),
            "cluster.id": CLUSTER_ID,
            "controller.quorum.voters": voters,
            "broker.session.timeout.ms": 60_000,
            "metrics.port": self._metrics_ports[node_id],
        }
        command = [sys.executable, "-m", "klamm_controller"]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        with pathlib.Path(self.directory, f"{node_id}.log").open("a") as log:
            self._processes[node_id] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, node_id: int) -> None:
        """kill -9."""
        process = self._processes.pop(node_id)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        """Ends all processes."""
        for node_id in list(self._processes):
            self.kill(node_id)

    def rss_mb(self, node_id: int) -> float:
        """Resident memory."""
        return self._process(node_id).memory_info().rss / 1e6

    def cpu_s(self) -> float:
        """CPU seconds that all have used, user and system."""
        times = [self._process(node_id).cpu_times() for node_id in self._processes]
        return sum(time.user + time.system for time in times)

    def queue_events(self, node_id: int) -> dict[float, int]:
        """Returns the number of events that the controller's queue has handled, by their maximum duration in
        seconds."""
        with urllib.request.urlopen(f"http://{HOST}:{self._metrics_ports[node_id]}/metrics", timeout=TIMEOUT_S) as page:
            text = page.read().decode()
        buckets = re.findall(
            r'^klamm_event_queue_handle_seconds_bucket{le="(.+?)",queue="controller"} (.+)$', text, re.M
        )
        return {float(bound): int(float(count)) for bound, count in buckets}

    def _process(self, node_id: int) -> psutil.Process:
        return psutil.Process(self._processes[node_id].pid)


@contextlib.contextmanager
def controllers() -> Iterator[Controllers]:
    """Three of them, started, on fresh directories."""
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as scratch:
        quorum = Controllers(pathlib.Path(scratch))
        try:
            for node_id in quorum.ports:
                quorum.start(node_id)
            yield quorum
        finally:
            quorum.close()


class Client:
    """Sends its calls to the controller that leads, and finds out which one does."""

    def __init__(self, quorum: Controllers) -> None:
        self._channels = {
            node_id: aio.insecure_channel(f"{HOST}:{port}", options=_OPTIONS) for node_id, port in quorum.ports.items()
        }
        self._admin = {node_id: RawStub(channel, ADMIN) for node_id, channel in self._channels.items()}
        self._controller = {node_id: RawStub(channel, CONTROLLER) for node_id, channel in self._channels.items()}
        self.leader_id = 1
        self.broker_epochs: dict[int, int] = {}
        self.repeated = 0
        """Calls that had to be made again, because the controller asked did not lead, or not any more."""

    async def close(self) -> None:
        """Hangs up."""
        for channel in self._channels.values():
            await channel.close()

    @property
    def admin(self) -> Any:
        """The leader's Admin service."""
        return self._admin[self.leader_id]

    @property
    def controller(self) -> Any:
        """The leader's Controller service."""
        return self._controller[self.leader_id]

    async def retried(self, call: Callable[[float], Awaitable[Any]], *, attempt_s: float = TIMEOUT_S) -> Any:
        """Repeats a call with a time-out, at one controller after the other, until the leader answers."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline_s:
            with contextlib.suppress(grpc.RpcError):
                answer = await call(attempt_s)
                if not answer.error_code:
                    return answer
                assert answer.error_code in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT), answer
            self.repeated += 1
            self.leader_id = self.leader_id % len(self._channels) + 1
            await asyncio.sleep(0.005)
        raise TimeoutError("no controller answers")

    async def describe(self) -> Any:
        """Waits for a leader, and returns its description of the quorum."""
        return await self.retried(lambda s: self.admin.describe_quorum(DescribeQuorumRequest(), timeout=s), attempt_s=1)

    async def register_brokers(self) -> None:
        """Makes BROKER_IDS live."""
        for broker_id in BROKER_IDS:
            request = RegisterBrokerRequest(
                cluster_id=CLUSTER_ID,
                broker_id=broker_id,
                incarnation_id=bytes([broker_id]) * 16,
                endpoint=Endpoint(host=HOST, port=broker_id),
                log_dir_ids=[bytes([broker_id]) * 16],
            )
            answer = await self.retried(self._registration(request))
            self.broker_epochs[broker_id] = answer.epoch
            await self.heartbeat(broker_id)

    def _registration(self, request: RegisterBrokerRequest) -> Callable[[float], Awaitable[Any]]:
        return lambda timeout_s: self.controller.register_broker(request, timeout=timeout_s)

    async def heartbeat(self, broker_id: int) -> None:
        """A sign of life of a broker that is up to date."""
        request = BrokerHeartbeatRequest(
            broker_id=broker_id, broker_epoch=self.broker_epochs[broker_id], metadata_end_index=1 << 60
        )
        await self.retried(lambda s: self.controller.broker_heartbeat(request, timeout=s))

    async def create_on(self, name: str, partition_count: int, leader: int) -> list[bytes]:
        """Creates a topic whose leaders are all on one broker, and returns its id."""
        replicas = [leader, *(broker_id for broker_id in BROKER_IDS if broker_id != leader)]
        assignments = [ReplicaAssignment(partition=number, broker_ids=replicas) for number in range(partition_count)]
        return await self._create(
            [NewTopic(name=name, assignments=assignments, partition_count=-1, replication_factor=-1)]
        )

    async def create_topics(self, names: Sequence[str], partition_count: int) -> list[bytes]:
        """Creates topics with three replicas, and returns their ids."""
        return await self._create(
            [NewTopic(name=name, partition_count=partition_count, replication_factor=3) for name in names]
        )

    async def _create(self, topics: Sequence[NewTopic]) -> list[bytes]:
        request = CreateTopicsRequest(topics=topics, timeout_ms=int(TIMEOUT_S * 1000))
        repeated = self.repeated
        answer: CreateTopicsResponse = await self.retried(lambda s: self.admin.create_topics(request, timeout=s))
        # What a leader created that did not live to answer is there when it is asked for again.
        fine = (0, ErrorCode.TOPIC_ALREADY_EXISTS) if self.repeated > repeated else (0,)
        assert all(topic.error_code in fine for topic in answer.topics), answer
        return [topic.topic_id for topic in answer.topics]


@contextlib.asynccontextmanager
async def client(quorum: Controllers) -> AsyncIterator[Client]:
    """Connected to the leader, with live brokers."""
    connected = Client(quorum)
    try:
        await connected.describe()
        await connected.register_brokers()
        yield connected
    finally:
        await connected.close()
