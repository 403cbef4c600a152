"""Three controllers, a broker and a coordinator as processes, for tests that kill, stop and freeze them."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import grpc
from klamm_process import free_port

from klamm.wire.service import ADMIN, methods
from klamm.wire.v1.controller_pb2 import DescribeQuorumRequest, DescribeQuorumResponse

HOST = "127.0.0.1"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
DEADLINE_S = 60


class ServerProcess:
    """`python -m <package>` with settings; keeps port and directory over restarts."""

    def __init__(self, package: str, node_id: int, directory: pathlib.Path, settings: Mapping[str, str]) -> None:
        self.node_id = node_id
        self.port = int(settings["listeners"].rpartition(":")[2])
        self.log_path = directory / f"{package}-{node_id}.log"
        self._command = [sys.executable, "-m", package]
        for name, text in {"node.id": str(node_id), **settings}.items():
            self._command += ["--set", f"{name}={text}"]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        assert not self.running
        with self.log_path.open("a") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def end(self, number: signal.Signals) -> int:
        """Sends the signal; returns the exit status."""
        assert self._process is not None
        process, self._process = self._process, None
        assert process.poll() is None, f"it had ended: {self.log_path.read_text()}"
        process.send_signal(number)
        return process.wait(DEADLINE_S)

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def abandon(self) -> None:
        """Whatever became of it, it does not outlive the test."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(DEADLINE_S)


class Quorum:
    """`controllers` by node.id; `broker` and `coordinator` are made, but started by whoever needs them."""

    def __init__(self, directory: pathlib.Path, controller_settings: Mapping[str, str] | None = None) -> None:
        ports = {node_id: free_port() for node_id in (1, 2, 3)}
        voters = ",".join(f"{node_id}@{HOST}:{port}" for node_id, port in ports.items())
        servers = ",".join(f"{HOST}:{port}" for port in ports.values())
        self.controllers = {
            node_id: ServerProcess(
                "klamm_controller",
                node_id,
                directory,
                {
                    "listeners": f"GRPC://{HOST}:{port}",
                    "metadata.log.dir": str(directory / f"controller-{node_id}"),
                    "cluster.id": CLUSTER_ID,
                    "controller.quorum.voters": voters,
                    **(controller_settings or {}),
                },
            )
            for node_id, port in ports.items()
        }
        follows = {"controller.quorum.bootstrap.servers": servers}
        listens = {"listeners": f"GRPC://{HOST}:{free_port()}"}
        self.broker = ServerProcess(
            "klamm_broker", 1, directory, {**listens, **follows, "log.dirs": str(directory / "broker")}
        )
        listens = {"listeners": f"GRPC://{HOST}:{free_port()}"}
        self.coordinator = ServerProcess(
            "klamm_coordinator", 1, directory, {**listens, **follows, "group.initial.rebalance.delay.ms": "0"}
        )
        self._channels: dict[int, grpc.Channel] = {}

    @property
    def processes(self) -> list[ServerProcess]:
        return [*self.controllers.values(), self.broker, self.coordinator]

    def start(self) -> None:
        for process in self.processes:
            process.start()

    def describe(self, node_id: int, timeout_s: float = 1.0) -> DescribeQuorumResponse | None:
        """What that controller says of the quorum; None when it does not answer."""
        (method,) = (method for method in methods(ADMIN) if method.name == "describe_quorum")
        with grpc.insecure_channel(
            self.controllers[node_id].address, options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            call = channel.unary_unary(method.path, method.request_serializer, method.response_deserializer)
            try:
                answer = call(DescribeQuorumRequest(), timeout=timeout_s)
            except grpc.RpcError:
                return None
        assert isinstance(answer, DescribeQuorumResponse)
        return answer

    def wait_leader(self, *, but: int | None = None, deadline_s: float = DEADLINE_S) -> ServerProcess:
        """The controller that leads, other than `but`."""
        until_s = time.monotonic() + deadline_s
        while time.monotonic() < until_s:
            for node_id, controller in self.controllers.items():
                if node_id == but or not controller.running:
                    continue
                answer = self.describe(node_id)
                if answer is not None and not answer.error_code and answer.leader_id == node_id:
                    return controller
            time.sleep(0.02)
        raise AssertionError(
            "no leader: " + "\n".join(c.log_path.read_text()[-3000:] for c in self.controllers.values())
        )


@contextmanager
def quorum_processes(directory: pathlib.Path, **settings: str) -> Iterator[Quorum]:
    """Nothing runs yet; at the end nothing does any more."""
    quorum = Quorum(directory, {name.replace("_", "."): text for name, text in settings.items()})
    try:
        yield quorum
    finally:
        for process in quorum.processes:
            process.abandon()
