"""A cluster in which all clients are known by certificate, and access control lists give them their rights, on both
protocols."""

from __future__ import annotations

import pathlib
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from klamm import Admin
from klamm.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from tests.support import certificates
from tests.support.kafka_wire import KafkaWire
from tests.support.ports import free_ports
from tests.support.server_process import ServerProcess
from tests.support.waiting import wait_until

HOST: Final = "localhost"
MAPPING_RULES: Final = "RULE:^CN=([^,]+).*$/$1/"
SUPER_USERS: Final = ";".join(f"User:{name}" for name in ("controller", "broker", "admin"))
"""The super users. The coordinator is not one of them, because an ACL gives it the rights of a server."""


def allow(who: str, operation: AclOperation, resource_type: ResourceType, name: str) -> AclBinding:
    """Returns an ACL that allows the operation to `User:who` from every host."""
    return AclBinding(resource_type, name, PatternType.LITERAL, f"User:{who}", "*", operation, AclPermissionType.ALLOW)


SERVES: Final = allow("coordinator", AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")


_SILENT_MEMBERS_STAY: Final = {
    "group.consumer.max.session.timeout.ms": "3600000",
    "group.consumer.session.timeout.ms": "3600000",
}
"""Settings for very long sessions, because a test that fills a cluster for other tests sends no further heartbeats."""


class AuthorizedCluster:
    """A controller, a broker and a coordinator with mTLS at all listeners. All three servers have these `settings`."""

    def __init__(self, directory: pathlib.Path, settings: Mapping[str, str]) -> None:
        self.directory = directory
        self._shared = settings
        controller, broker, coordinator, kafka = free_ports(range(4))
        self.controller_grpc, self.grpc, self.coordinator_grpc = (
            f"{HOST}:{port}" for port in (controller, broker, coordinator)
        )
        self.bootstrap = f"{HOST}:{kafka}"
        bootstrap = {"controller.quorum.bootstrap.servers": self.controller_grpc}
        self.controller = self._server(
            "controller", f"GRPC_SSL://{self.controller_grpc}", {"metadata.log.dir": str(directory / "m")}
        )
        self.broker = self._server(
            "broker",
            f"GRPC_SSL://{self.grpc},SSL://{self.bootstrap}",
            {"log.dirs": str(directory / "log"), "offsets.topic.num.partitions": "2", **bootstrap},
        )
        self.coordinator = self._server(
            "coordinator",
            f"GRPC_SSL://{self.coordinator_grpc}",
            {"group.initial.rebalance.delay.ms": "0", **_SILENT_MEMBERS_STAY, **bootstrap},
        )
        self.processes = [self.controller, self.broker, self.coordinator]

    def start(self) -> None:
        """Starts the three servers, and returns when all of them serve."""
        self.controller.start()
        self.broker.start()
        wait_until(lambda: "broker=1 serving" in self.broker.log_path.read_text(), self.logs)
        with self.admin() as admin:
            admin.create_acls([SERVES])
        self.coordinator.start()
        wait_until(lambda: "coordinator=1 serving" in self.coordinator.log_path.read_text(), self.logs)

    def stop(self) -> None:
        for process in self.processes:
            process.abandon()

    def stores(self, who: str) -> certificates.Stores:
        """Writes the keystore and the truststore of a client, and returns their paths."""
        return certificates.write_stores(self.directory / f"client-{who}", certificates.client(who))

    def kafka(self, who: str) -> dict[str, str]:
        """Returns the settings with which a librdkafka client connects as `User:who`."""
        stores = self.stores(who)
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(stores.truststore),
            "ssl.certificate.location": str(stores.keystore),
            "ssl.key.location": str(stores.keystore),
        }

    def klamm(self, who: str) -> dict[str, str]:
        """Returns the settings with which a Klamm client connects as `User:who`."""
        return {"bootstrap.servers": self.grpc, "security.protocol": "SSL", **self.stores(who).settings()}

    def admin(self, who: str = "admin") -> Admin:
        """Returns an Admin client of `User:who`, over gRPC."""
        return Admin(self.klamm(who))

    def wire(self, who: str) -> KafkaWire:
        """Returns a connection of `User:who` to the Kafka listener."""
        stores = self.stores(who)
        context = ssl.create_default_context(cafile=stores.truststore)
        context.load_cert_chain(stores.keystore)
        return KafkaWire(self.bootstrap, tls=context)

    def logs(self) -> str:
        paths = [process.log_path for process in self.processes if process.log_path.exists()]
        return "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in paths)

    def _server(self, kind: str, listeners: str, settings: Mapping[str, str]) -> ServerProcess:
        stores = certificates.write_stores(self.directory / kind, certificates.server(kind))
        properties = {
            "listeners": listeners,
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": MAPPING_RULES,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": SUPER_USERS,
            **stores.settings(),
            **self._shared,
            **settings,
        }
        return ServerProcess(f"klamm_{kind}", 1, self.directory, properties)


@contextmanager
def authorized_cluster(directory: pathlib.Path, **settings: str) -> Iterator[AuthorizedCluster]:
    """Yields a started cluster. `settings` have underscores for dots. The cluster is killed at the end."""
    made = AuthorizedCluster(directory, {name.replace("_", "."): text for name, text in settings.items()})
    try:
        made.start()
        yield made
    finally:
        made.stop()
