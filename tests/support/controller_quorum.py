"""Three controllers, a broker and a coordinator as processes, for tests that kill, stop and freeze them."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import grpc

from klamm.wire.v1.controller_pb2 import DescribeQuorumRequest, DescribeQuorumResponse
from klamm.wire.v1.controller_rpc import ADMIN
from tests.support.ports import free_port
from tests.support.server_process import ServerProcess
from tests.support.waiting import wait_until

HOST = "127.0.0.1"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


class Quorum:
    """A quorum with `controllers` by node.id. `broker` and `coordinator` exist, but tests start them."""

    def __init__(
        self, directory: pathlib.Path, controller_settings: Mapping[str, str] | None = None, size: int = 3
    ) -> None:
        self.directory = directory
        self._controller_settings = dict(controller_settings or {})
        ports = {node_id: free_port() for node_id in range(1, size + 1)}
        voters = ",".join(f"{node_id}@{HOST}:{port}" for node_id, port in ports.items())
        servers = ",".join(f"{HOST}:{port}" for port in ports.values())
        self.controllers = {
            node_id: self._controller(node_id, port, {"controller.quorum.voters": voters})
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

    def addresses(self) -> list[str]:
        """Returns the addresses of all controllers."""
        return [controller.address for controller in self.controllers.values()]

    def joining(self, node_id: int) -> ServerProcess:
        """Returns an additional controller, not started. It asks the present controllers for the quorum, and follows
        it."""
        servers = ",".join(controller.address for controller in self.controllers.values())
        settings = {"controller.quorum.bootstrap.servers": servers}
        self.controllers[node_id] = self._controller(node_id, free_port(), settings)
        return self.controllers[node_id]

    def moved(self, node_id: int) -> ServerProcess:
        """Returns the same controller at another port, not started. The configuration of the others still has the old
        port."""
        assert not self.controllers[node_id].running
        port = free_port()
        addresses = {each: process.address for each, process in self.controllers.items()}
        voters = ",".join(f"{each}@{at}" for each, at in {**addresses, node_id: f"{HOST}:{port}"}.items())
        self.controllers[node_id] = self._controller(node_id, port, {"controller.quorum.voters": voters})
        return self.controllers[node_id]

    def wipe(self, node_id: int) -> None:
        """Deletes the controller's disk. The controller must not run."""
        assert not self.controllers[node_id].running
        shutil.rmtree(self._data_dir(node_id))

    def _data_dir(self, node_id: int) -> pathlib.Path:
        return self.directory / f"controller-{node_id}"

    def _controller(self, node_id: int, port: int, quorum: Mapping[str, str]) -> ServerProcess:
        settings = {
            "listeners": f"GRPC://{HOST}:{port}",
            "metadata.log.dir": str(self._data_dir(node_id)),
            "cluster.id": CLUSTER_ID,
            **quorum,
            **self._controller_settings,
        }
        return ServerProcess("klamm_controller", node_id, self.directory, settings)

    @property
    def processes(self) -> list[ServerProcess]:
        return [*self.controllers.values(), self.broker, self.coordinator]

    def start(self) -> None:
        for process in self.processes:
            process.start()

    def describe(self, node_id: int, timeout_s: float = 1.0) -> DescribeQuorumResponse | None:
        """Returns that controller's description of the quorum, or None if it does not answer."""
        (method,) = (method for method in ADMIN.methods if method.name == "describe_quorum")
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

    def wait_leader(self, *, but: int | None = None, timeout_s: float | None = None) -> ServerProcess:
        """Waits until a controller other than `but` leads, and returns it."""
        found = wait_until(lambda: self._leader(but), self._logs, timeout_s=timeout_s)
        assert found is not None
        return found

    def _leader(self, but: int | None) -> ServerProcess | None:
        for node_id, controller in self.controllers.items():
            if node_id == but or not controller.running:
                continue
            answer = self.describe(node_id)
            if answer is not None and not answer.error_code and answer.leader_id == node_id:
                return controller
        return None

    def _logs(self) -> str:
        return "no leader: " + "\n".join(
            controller.log_path.read_text()[-3000:] for controller in self.controllers.values()
        )


@contextmanager
def quorum_processes(directory: pathlib.Path, *, size: int = 3, **settings: str) -> Iterator[Quorum]:
    """Yields a quorum without running processes. At the end, ends all its processes."""
    quorum = Quorum(directory, {name.replace("_", "."): text for name, text in settings.items()}, size)
    try:
        yield quorum
    finally:
        for process in quorum.processes:
            process.abandon()
