"""Three controllers with processes, disks and cables that faults can strike."""

from __future__ import annotations

import pathlib
from typing import Final

import grpc
from grpc import aio

from klamm.wire.v1.controller_pb2 import DescribeQuorumRequest, DescribeQuorumResponse
from klamm.wire.v1.controller_rpc import ADMIN
from tests.chaos.klammchaos.struck_processes import StruckProcesses
from tests.chaos.klammchaos.surroundings import Surroundings
from tests.support.ports import free_port
from tests.support.raw_stub import RawStub
from tests.support.server_process import ServerProcess
from tests.support.waiting import until

NODE_IDS: Final = (1, 2, 3)
CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
DISK_SIZE: Final = "48m"
_SETTINGS: Final = {
    # Snapshots are so frequent that the leader sends one to a controller that was away for a second or two.
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    # The only broker has no process, and sends a single heartbeat.
    "broker.session.timeout.ms": "86400000",
    # A server that is asked to stop must need less than this time.
    "shutdown.grace.ms": "600000",
}
_ASK_TIMEOUT_S: Final = 1.0
_BEHIND_ENTRIES_MAX: Final = 100
_SILENT_MS_MAX: Final = 500


class QuorumCluster(StruckProcesses):
    """A quorum of three controllers. Each metadata log is on a disk of its own if this machine allows it."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.surroundings = Surroundings(NODE_IDS)
        addresses = {node_id: f"{self.surroundings.host(node_id)}:{free_port()}" for node_id in NODE_IDS}
        voters = ",".join(f"{node_id}@{address}" for node_id, address in addresses.items())
        self.controllers = {
            node_id: ServerProcess(
                "klamm_controller",
                node_id,
                directory,
                {
                    "listeners": f"GRPC://{address}",
                    "metadata.log.dir": str(directory / f"controller-{node_id}"),
                    "cluster.id": CLUSTER_ID,
                    "controller.quorum.voters": voters,
                    **_SETTINGS,
                },
                self.surroundings.prefix(node_id),
            )
            for node_id, address in addresses.items()
        }
        log_dirs = {
            node_id: pathlib.Path(controller.settings["metadata.log.dir"])
            for node_id, controller in self.controllers.items()
        }
        self.surroundings.mount(log_dirs, DISK_SIZE)
        super().__init__(self.controllers)

    def addresses(self) -> list[str]:
        return [controller.address for controller in self.controllers.values()]

    def close(self) -> None:
        """Ends everything that is left of the cluster."""
        super().close()
        self.surroundings.close()

    # --- the state of the cluster

    async def leader(self) -> ServerProcess:
        """Returns the leader of the quorum. Waits for an election if there is none. Raises AssertionError if none is
        elected."""

        async def led() -> DescribeQuorumResponse | None:
            self.check_running()
            return await self.describe()

        return self.controllers[(await until(led, "no leader", pause_s=0.02)).leader_id]

    async def describe(self) -> DescribeQuorumResponse | None:
        """Returns the leader's description of the quorum, or None if no leader answers."""
        for controller in self.controllers.values():
            if controller.running:
                answer = await _describe(controller.address)
                if answer is not None:
                    return answer
        return None

    async def is_whole(self, behind_max: int = _BEHIND_ENTRIES_MAX) -> bool:
        """Returns True if the leader has recently received a message from every controller, and no controller is far
        behind."""
        described = await self.describe()
        voters = [replica for replica in described.replicas if replica.is_voter] if described is not None else []
        return len(voters) == len(self.controllers) and all(
            replica.silent_ms < _SILENT_MS_MAX and replica.lag <= behind_max for replica in voters
        )

    async def wait_whole(self, behind_max: int = _BEHIND_ENTRIES_MAX) -> None:
        """Waits until the quorum is whole. Raises AssertionError if it does not become whole."""

        async def whole() -> bool:
            self.check_running()
            return await self.is_whole(behind_max)

        await until(whole, "not whole again", pause_s=0.05)


async def _describe(address: str) -> DescribeQuorumResponse | None:
    """Returns the answer of the controller at `address`, or None if it is not the leader or does not answer."""
    async with aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        try:
            response = await RawStub(channel, ADMIN).describe_quorum(DescribeQuorumRequest(), timeout=_ASK_TIMEOUT_S)
        except grpc.RpcError:
            return None
    assert isinstance(response, DescribeQuorumResponse)
    return None if response.error_code else response
