"""Three controllers that are struck: their processes, disks and cables."""

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
    # Often enough that those who were away for a second or two are sent a snapshot.
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    # The broker that topics are placed on says once that it lives, and is no process.
    "broker.session.timeout.ms": "86400000",
    # A server that is asked to end must not need all of it.
    "shutdown.grace.ms": "600000",
}
_ASK_TIMEOUT_S: Final = 1.0
_BEHIND_ENTRIES_MAX: Final = 100
_SILENT_MS_MAX: Final = 500


class QuorumCluster(StruckProcesses):
    """Their metadata logs are on disks of their own, where that is possible."""

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
            node_id: pathlib.Path(one.settings["metadata.log.dir"]) for node_id, one in self.controllers.items()
        }
        self.surroundings.mount(log_dirs, DISK_SIZE)
        super().__init__(self.controllers)

    def addresses(self) -> list[str]:
        return [controller.address for controller in self.controllers.values()]

    def close(self) -> None:
        """Ends everything that is left of the cluster."""
        super().close()
        self.surroundings.close()

    # --- what is seen of it

    async def leader(self) -> ServerProcess:
        """The controller that leads now, or the next one that does. Raises AssertionError when there is none."""

        async def led() -> DescribeQuorumResponse | None:
            self.check_running()
            return await self.describe()

        return self.controllers[(await until(led, "no leader", pause_s=0.02)).leader_id]

    async def describe(self) -> DescribeQuorumResponse | None:
        """The leader's view, if there is a leader and it answers at once."""
        for controller in self.controllers.values():
            if controller.running:
                answer = await _describe(controller.address)
                if answer is not None:
                    return answer
        return None

    async def is_whole(self, behind_max: int = _BEHIND_ENTRIES_MAX) -> bool:
        """True if the leader has recently received a message from every controller, and no controller is far behind."""
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
    """Returns the answer of the controller there, or None if it is not the leader or does not answer."""
    async with aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        try:
            response = await RawStub(channel, ADMIN).describe_quorum(DescribeQuorumRequest(), timeout=_ASK_TIMEOUT_S)
        except grpc.RpcError:
            return None
    assert isinstance(response, DescribeQuorumResponse)
    return None if response.error_code else response
