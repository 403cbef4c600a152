"""A `NodeCluster` with listeners that refuse every client without a certificate or a password.

Servers show each other certificates, which `node.principals` accepts. Klamm's clients show a certificate and log in,
and Kafka's log in over TLS. Both log in again every few seconds. Each client has exactly the rights that it needs here.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from klamm.acls import AclBinding, AclOperation, ResourceType
from klamm.secret import Secret
from klamm.security.sasl.scram_keys import ScramMechanism
from klamm_controller.log.bootstrap import NewUser, user_records, write_bootstrap_records
from tests.chaos.klammchaos.node_cluster import NodeCluster
from tests.chaos.klammchaos.partition_cluster import ADMIN, BROKERS, CONSUMER, CONTROLLERS, PRODUCER, TOPIC
from tests.chaos.klammchaos.short_certificates import RELOAD_MS, ShortCertificates
from tests.support.authorized_cluster import MAPPING_RULES, allow
from tests.support.ports import free_port

OUTSIDER: Final = "outsider"
"""A user that has a certificate and a password, and may do nothing."""
REAUTHENTICATION_MS: Final = 10_000
PASSWORDS: Final = {who: f"of,{who}=" for who in (ADMIN, PRODUCER, CONSUMER, OUTSIDER)}
MECHANISMS: Final = {
    ADMIN: ScramMechanism.SHA_512,
    PRODUCER: ScramMechanism.SHA_256,
    CONSUMER: ScramMechanism.SHA_512,
    OUTSIDER: ScramMechanism.SHA_256,
}
ITERATIONS: Final = 4_096
NODES: Final = {
    **{node: f"controller-{node}" for node in CONTROLLERS},
    **{node: f"broker-{node}" for node in BROKERS},
}
"""The name in each server's certificate."""
SUPER_USERS: Final = (ADMIN, *(NODES[node] for node in (*CONTROLLERS, BROKERS[0])))
"""The super users. A quorum has no access control lists before it has begun, so the servers in it must let the admin
in. The admin then gives the other users their rights."""
RIGHTS: Final[tuple[AclBinding, ...]] = (
    *(
        allow(NODES[broker], AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
        for broker in BROKERS[1:]
    ),
    allow(PRODUCER, AclOperation.WRITE, ResourceType.TOPIC, TOPIC),
    allow(CONSUMER, AclOperation.READ, ResourceType.TOPIC, TOPIC),
)


class Endpoint(NamedTuple):
    """The address of a listener with TLS."""

    node: int
    listener: str
    host: str
    port: int

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class SecuredCluster(NodeCluster):
    """A cluster with TLS, logins and rights. Its certificates are replaced again and again until `end`."""

    rights = RIGHTS

    def __init__(self, directory: pathlib.Path) -> None:
        self.endpoints: list[Endpoint] = []
        self._certificates_dir = directory / "certificates"
        super().__init__(directory)
        hosts = {name: self.surroundings.host(node) for node, name in NODES.items()}
        self.certificates = ShortCertificates(self._certificates_dir, hosts, tuple(PASSWORDS))
        self._rotating: asyncio.Task[None] | None = None
        self.bootstrap = self.addresses("GRPC_SASL_SSL")

    def addresses(self, listener: str) -> str:
        """Returns the addresses of that listener on all brokers, separated by commas."""
        return ",".join(
            endpoint.address
            for endpoint in self.endpoints
            if endpoint.listener == listener and endpoint.node in BROKERS
        )

    def listener_settings(self, node: int, address: str) -> dict[str, str]:
        host, _, port = address.rpartition(":")
        kinds = ("SASL_SSL", "GRPC_SASL_SSL") if node in BROKERS else ("GRPC_SASL_SSL",)
        endpoints = [
            Endpoint(node, "GRPC_SSL", host, int(port)),
            *(Endpoint(node, kind, host, free_port()) for kind in kinds),
        ]
        self.endpoints += endpoints
        stores = self._certificates_dir / NODES[node]
        principals = [f"{name.replace('-', ':')}=User:{name}" for name in NODES.values()]
        return {
            "listeners": ",".join(f"{endpoint.listener}://{endpoint.address}" for endpoint in endpoints),
            "inter.broker.listener.name": "GRPC_SSL",
            "node.principals": ",".join(principals),
            "ssl.keystore.location": str(stores / "keystore.pem"),
            "ssl.truststore.location": str(stores / "truststore.pem"),
            "ssl.reload.interval.ms": str(RELOAD_MS),
            "ssl.principal.mapping.rules": MAPPING_RULES,
            "listener.name.grpc_ssl.ssl.client.auth": "required",
            "listener.name.grpc_sasl_ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(mechanism.mechanism_name for mechanism in ScramMechanism),
            "connections.max.reauth.ms": str(REAUTHENTICATION_MS),
            "authorizer.class.name": "StandardAuthorizer",
            "super.users": ";".join(f"User:{who}" for who in SUPER_USERS),
        }

    def client(self, who: str) -> dict[str, str]:
        stores = self.certificates.stores(who)
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.reload.interval.ms": str(RELOAD_MS),
            **stores.settings(),
            **_login(who),
        }

    def kafka_client(self, who: str) -> dict[str, str]:
        """Returns the settings with which a librdkafka client of the user `who` connects."""
        return {
            "bootstrap.servers": self.addresses("SASL_SSL"),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certificates.stores(who).truststore),
            **_login(who),
        }

    async def begin(self, min_insync_replicas: int) -> None:
        await asyncio.to_thread(self.certificates.rotate)
        records = user_records([NewUser(who, MECHANISMS[who], Secret(PASSWORDS[who]), ITERATIONS) for who in PASSWORDS])
        for node in CONTROLLERS:
            write_bootstrap_records(self._directory / f"controller-{node}", records)
        self._rotating = asyncio.create_task(self.certificates.rotate_again_and_again())
        await super().begin(min_insync_replicas)

    async def end(self) -> None:
        if self._rotating is not None:
            self._rotating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._rotating
        await super().end()


def _login(who: str) -> Mapping[str, str]:
    """Returns the login settings of a user, which are the same for Klamm's clients and for librdkafka."""
    return {
        "sasl.mechanism": MECHANISMS[who].mechanism_name,
        "sasl.username": who,
        "sasl.password": PASSWORDS[who],
    }
