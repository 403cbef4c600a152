"""A cluster with a process for each server. Each process runs at a node of its own."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Final

from tests.chaos.klammchaos.means import Means
from tests.chaos.klammchaos.partition_cluster import BROKERS, CONTROLLERS, DISK_SIZE, SEGMENT_BYTES, PartitionCluster
from tests.chaos.klammchaos.struck_processes import StruckProcesses
from tests.chaos.klammchaos.surroundings import Surroundings
from tests.support.ports import free_port
from tests.support.server_process import ServerProcess

CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"


class NodeCluster(StruckProcesses, PartitionCluster):
    """A cluster of server processes at nodes of their own. The nodes have cables if this machine allows them."""

    def __init__(
        self, directory: pathlib.Path, broker_package: str = "klamm_broker", coordinators: Sequence[int] = ()
    ) -> None:
        nodes = (*CONTROLLERS, *BROKERS, *coordinators)
        self.surroundings = Surroundings(nodes)
        addresses = {node: f"{self.surroundings.host(node)}:{free_port()}" for node in nodes}
        voters = ",".join(f"{node}@{addresses[node]}" for node in CONTROLLERS)
        servers = ",".join(addresses[node] for node in CONTROLLERS)
        self._directory = directory
        self.surroundings.mount({broker: self.log_dir(broker) for broker in BROKERS}, DISK_SIZE)

        def process(package: str, node: int, settings: dict[str, str]) -> ServerProcess:
            listener_settings = self.listener_settings(node, addresses[node])
            return ServerProcess(
                package, node, directory, {**listener_settings, **settings}, self.surroundings.prefix(node)
            )

        PartitionCluster.__init__(self)
        StruckProcesses.__init__(
            self,
            {
                **{
                    node: process(
                        "klamm_controller",
                        node,
                        {
                            "metadata.log.dir": str(directory / f"controller-{node}"),
                            "cluster.id": CLUSTER_ID,
                            "controller.quorum.voters": voters,
                        },
                    )
                    for node in CONTROLLERS
                },
                **{
                    node: process(
                        broker_package,
                        node,
                        {
                            "log.dirs": str(self.log_dir(node)),
                            "controller.quorum.bootstrap.servers": servers,
                            "log.segment.bytes": str(SEGMENT_BYTES),
                        },
                    )
                    for node in BROKERS
                },
                **{
                    node: process("klamm_coordinator", node, {"controller.quorum.bootstrap.servers": servers})
                    for node in coordinators
                },
            },
        )
        self.bootstrap = ",".join(addresses[node] for node in BROKERS)

    def listener_settings(self, node: int, address: str) -> dict[str, str]:
        """Returns the settings of a server's listeners. Other servers dial `address`."""
        return {"listeners": f"GRPC://{address}"}

    def log_dir(self, broker: int) -> pathlib.Path:
        return self._directory / f"broker-{broker}"

    @property
    def means(self) -> frozenset[Means]:
        around = self.surroundings
        possible = {Means.DISKS: around.has_disks, Means.CABLES: around.has_network, Means.ABSENCE: True}
        return frozenset(means for means, is_possible in possible.items() if is_possible)

    async def wait_up(self) -> None:
        self.expect_up()

    def stop_brokers(self) -> None:
        for broker in BROKERS:
            self.stop(broker)
