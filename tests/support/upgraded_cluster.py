"""A cluster that moves from plain text to security by three rolling restarts, and the errors of its clients during
them.

`docs/how-to/security.md` tells operators the same steps. Servers listen at every interface, so that the rules for
servers that others can reach hold here, too.
"""

from __future__ import annotations

import enum
import pathlib
import signal
import ssl
from typing import Any, Final, NamedTuple

from confluent_kafka.admin import AdminClient

from klamm import health
from tests.support import certificates
from tests.support.ports import free_ports
from tests.support.server_process import ServerProcess
from tests.support.waiting import patience, wait_until

HOST: Final = "127.0.0.1"
CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
USER, PASSWORD = "alice", "wonder,land="
PAUSE_S: Final = 0.1


class Step(enum.IntEnum):
    """The steps of the upgrade. Each step but the first is a rolling restart."""

    PLAIN = 0
    LISTENERS = 1
    """Servers have secured listeners, and still have listeners in plain text."""
    SWITCHED = 2
    """Servers use each other's secured listeners, and check the rights of clients. A client in plain text still has all
    rights."""
    CLOSED = 3
    """Servers have no listeners in plain text any more."""


class Node(NamedTuple):
    """A server, with its ports: in plain text, between servers, for clients of the gRPC API, and for Kafka clients
    without and with TLS."""

    kind: str
    node_id: int
    plain: int
    internal: int
    clients: int
    kafka_plain: int
    kafka: int

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.node_id}"


class UpgradedCluster:
    """Three controllers, two brokers and a coordinator. `roll` moves all of them to a step."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.nodes = [
            Node(kind, node_id, *free_ports(range(5)))
            for kind, count in (("controller", 3), ("broker", 2), ("coordinator", 1))
            for node_id in range(1, count + 1)
        ]
        self._trusted = certificates.write_stores(directory / "client", certificates.client()).truststore
        self._processes: dict[str, ServerProcess] = {}
        self._admins: dict[Step, AdminClient] = {}

    def start(self) -> None:
        for node in self.nodes:
            self._begin(node, Step.PLAIN)
        for node in self.nodes:
            self._wait_serving(node, Step.PLAIN)

    def stop(self) -> None:
        for process in self._processes.values():
            process.abandon()

    def roll(self, step: Step) -> None:
        """Restarts one server after the other. The next restart begins when this server serves and every partition has
        all replicas."""
        for node in self.nodes:
            assert self._processes[node.name].end(signal.SIGTERM) == 0, self.logs()
            self._begin(node, step)
            self._wait_serving(node, step)
            wait_until(lambda: self._all_in_sync(step), self.logs, pause_s=PAUSE_S)

    def klamm(self, step: Step, user: str = USER) -> dict[str, Any]:
        """Returns the settings of a client of the gRPC API at that step."""
        brokers = [node for node in self.nodes if node.kind == "broker"]
        if step < Step.CLOSED:
            return {"bootstrap.servers": ",".join(f"{HOST}:{broker.plain}" for broker in brokers)}
        return {
            "bootstrap.servers": ",".join(f"{HOST}:{broker.clients}" for broker in brokers),
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(self._trusted),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": PASSWORD,
        }

    def kafka(self, step: Step, user: str = USER) -> dict[str, Any]:
        """Returns librdkafka's settings at that step."""
        brokers = [node for node in self.nodes if node.kind == "broker"]
        if step < Step.CLOSED:
            return {"bootstrap.servers": ",".join(f"{HOST}:{broker.kafka_plain}" for broker in brokers)}
        return {
            "bootstrap.servers": ",".join(f"{HOST}:{broker.kafka}" for broker in brokers),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self._trusted),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": PASSWORD,
        }

    def logs(self) -> str:
        paths = [process.log_path for process in self._processes.values()]
        return "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in paths)

    def _begin(self, node: Node, step: Step) -> None:
        process = ServerProcess(f"klamm_{node.kind}", node.node_id, self.directory, self.settings(node, step))
        self._processes[node.name] = process
        process.start()

    def _wait_serving(self, node: Node, step: Step) -> None:
        wait_until(lambda: self._health(node, step) == "SERVING", self.logs, pause_s=PAUSE_S)

    def _health(self, node: Node, step: Step) -> str:
        tls = ssl.create_default_context(cafile=self._trusted) if step is Step.CLOSED else None
        port = node.plain if tls is None else node.clients
        if tls is not None:
            tls.set_alpn_protocols(["h2"])
        try:
            return health.check(HOST, port, timeout_s=patience(), tls=tls)
        except (health.ProbeError, OSError):
            assert self._processes[node.name].running, self.logs()
            return ""

    def _all_in_sync(self, step: Step) -> bool:
        if step not in self._admins:
            self._admins[step] = AdminClient(self.kafka(step, "admin"))
        topics = self._admins[step].list_topics(timeout=patience()).topics.values()
        return all(
            len(partition.isrs) == len(partition.replicas)
            for topic in topics
            for partition in topic.partitions.values()
        )

    def settings(self, node: Node, step: Step) -> dict[str, str]:
        """Returns the settings with which a server is started."""
        listeners = self._listeners(node, step)
        return {
            "listeners": ",".join(f"{name}://0.0.0.0:{port}" for name, port in listeners.items()),
            "advertised.listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items()),
            **self._own(node),
            **self._quorum(node, step),
            **(self._secured(node) if step > Step.PLAIN else {}),
            **_SETTINGS[step],
        }

    def _listeners(self, node: Node, step: Step) -> dict[str, int]:
        plain, secured = {"GRPC": node.plain}, {"INTERNAL": node.internal, "CLIENTS": node.clients}
        if node.kind == "broker":
            plain["PLAINTEXT"], secured["SASL_SSL"] = node.kafka_plain, node.kafka
        return {**(plain if step < Step.CLOSED else {}), **(secured if step > Step.PLAIN else {})}

    def _own(self, node: Node) -> dict[str, str]:
        replicas = {"offsets.topic.num.partitions": "2", "offsets.topic.replication.factor": "2"}
        if node.kind == "controller":
            return {"metadata.log.dir": str(self.directory / node.name), "cluster.id": CLUSTER_ID, **replicas}
        if node.kind == "broker":
            return {"log.dirs": str(self.directory / node.name), **replicas}
        return {"group.initial.rebalance.delay.ms": "0"}

    def _quorum(self, node: Node, step: Step) -> dict[str, str]:
        """Returns the settings with the controllers' addresses, at the listeners that this server uses at that step."""
        at = {
            one.node_id: f"{HOST}:{one.plain if step < Step.SWITCHED else one.internal}"
            for one in self.nodes
            if one.kind == "controller"
        }
        if node.kind == "controller":
            return {"controller.quorum.voters": ",".join(f"{node_id}@{server}" for node_id, server in at.items())}
        return {"controller.quorum.bootstrap.servers": ",".join(at.values())}

    def _secured(self, node: Node) -> dict[str, str]:
        stores = certificates.write_stores(self.directory / f"{node.name}-tls", certificates.server(node.name))
        return {
            "listener.security.protocol.map": "INTERNAL:GRPC_SSL,CLIENTS:GRPC_SASL_SSL",
            "listener.name.internal.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
            **stores.settings(),
        }


_SERVERS: Final = ("controller-1", "controller-2", "controller-3", "broker-1", "broker-2", "coordinator-1")
_SUPER_USERS: Final = ";".join(f"User:{name}" for name in ("admin", *_SERVERS))
"""The super users. All servers are super users, because no ACL can give them the rights of servers before there is an
authorizer."""
_AUTHORIZER: Final = {"authorizer.class.name": "StandardAuthorizer", "inter.broker.listener.name": "INTERNAL"}
_SETTINGS: Final[dict[Step, dict[str, str]]] = {
    Step.PLAIN: {},
    Step.LISTENERS: {"inter.broker.listener.name": "GRPC", "security.migration.enable": "true"},
    Step.SWITCHED: {
        **_AUTHORIZER,
        "super.users": f"User:ANONYMOUS;{_SUPER_USERS}",
        "security.migration.enable": "true",
    },
    Step.CLOSED: {**_AUTHORIZER, "super.users": _SUPER_USERS},
}
