"""Klamm and Apache Kafka with the same certificates, user and rights, each with one listener of each kind.

| listener  | encrypted | who the client is                                        |
|-----------|-----------|----------------------------------------------------------|
| PLAINTEXT | no        | nobody                                                   |
| SSL       | TLS 1.3   | nobody                                                   |
| SASL_SSL  | TLS 1.3   | `USER`, by SCRAM-SHA-512                                 |
| ADMIN     | yes       | a super user by certificate, who makes `USER` and rights |

With an authorizer, `USER` and anonymous clients may do everything with the topics and groups of the benchmarks, and
nothing else. So their rights are checked; those of super users would not be. Kafka's controller has a listener without
TLS, where Kafka's brokers are anonymous: there the anonymous user is a super user.
"""

from __future__ import annotations

import contextlib
import pathlib
import secrets
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from bench.kafka_produce import TOPIC as RAW_TOPIC
from bench.peer_servers import HOST, Peer, kafka, klamm
from bench.peer_workload import GROUP, TIMEOUT_S, first_produce, in_a_process
from bench.servers import free_port
from klamm.security.dev_files import NODE, DevFiles

USER: Final = "bench"
MECHANISM: Final = "SCRAM-SHA-512"
ITERATIONS: Final = 4_096
LOGIN_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
LISTENERS: Final = {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL", "SASL_SSL": "SASL_SSL", "ADMIN": "SSL"}
"""Their protocols by their names."""
TOPICS: Final = "peers-"
"""The prefix of the names of librdkafka's topics."""
OTHERS: Final = 200
"""Entries for other users and topics, which are there too."""
START_S: Final = 120


@dataclass(frozen=True, slots=True)
class SecuredPeer:
    """A running server of one node."""

    peer: Peer
    ports: Mapping[str, int]
    """The port of each listener."""
    files: DevFiles
    password: str

    def bootstrap(self, listener: str) -> str:
        return f"{HOST}:{self.ports[listener]}"

    def at(self, listener: str) -> Peer:
        """The same server, whose clients come to that listener."""
        return Peer(self.peer.name, self.bootstrap(listener), self.peer.started)

    def client(self, listener: str) -> dict[str, str]:
        """Returns the settings of a librdkafka client for that listener."""
        tls = {"security.protocol": LISTENERS[listener], "ssl.ca.location": str(self.files.ca)}
        match listener:
            case "PLAINTEXT":
                return {}
            case "SASL_SSL":
                login = {"sasl.mechanism": MECHANISM, "sasl.username": USER, "sasl.password": self.password}
                return {**tls, **login}
            case "ADMIN":
                own = str(self.files.node)
                return {**tls, "ssl.certificate.location": own, "ssl.key.location": own}
        return tls


def client_context() -> ssl.SSLContext:
    """Returns a TLS context for plain sockets. It does not verify the server's certificate, because only the client
    would have that work."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@contextlib.contextmanager
def secured_klamm(directory: pathlib.Path, *, has_authorizer: bool) -> Iterator[SecuredPeer]:
    """Serves, and knows the user and the rights."""
    files = _files(directory)
    ports = {name: free_port() for name in (*LISTENERS, "INTERNAL")}
    settings = _settings(files, ports) | {
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": _protocols(INTERNAL="GRPC_SSL"),
        "listener.name.internal.ssl.client.auth": "required",
    }
    if has_authorizer:
        settings |= {"authorizer.class.name": "StandardAuthorizer", "super.users": f"User:CN={NODE}"}
    with klamm(directory, settings=settings, grpc_port=ports["INTERNAL"]) as peer:
        yield _prepared(SecuredPeer(peer, ports, files, secrets.token_urlsafe(32)), has_authorizer=has_authorizer)


@contextlib.contextmanager
def secured_kafka(directory: pathlib.Path, *, has_authorizer: bool) -> Iterator[SecuredPeer]:
    """Serves, and knows the user and the rights."""
    files = _files(directory)
    ports = {name: free_port() for name in (*LISTENERS, "CONTROLLER")}
    settings = _settings(files, ports) | {
        "controller.quorum.voters": f"1@{HOST}:{ports['CONTROLLER']}",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": _protocols(CONTROLLER="PLAINTEXT"),
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": f"{LOGIN_MODULE} required;",
    }
    if has_authorizer:
        settings |= {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:CN={NODE};User:ANONYMOUS",
        }
    with kafka(directory, settings=settings) as peer:
        yield _prepared(SecuredPeer(peer, ports, files, secrets.token_urlsafe(32)), has_authorizer=has_authorizer)


STARTS: Final[Mapping[str, Callable[..., contextlib.AbstractContextManager[SecuredPeer]]]] = {
    "klamm": secured_klamm,
    "kafka": secured_kafka,
}


def _files(directory: pathlib.Path) -> DevFiles:
    """The same for all servers in that directory's parent."""
    directory.mkdir()
    files = DevFiles(directory.parent / "certificates")
    if not files.node.exists():
        files.make_servers({NODE: [HOST]}, now=datetime.now(UTC))
    return files


def _settings(files: DevFiles, ports: Mapping[str, int]) -> dict[str, str]:
    """Returns the settings that have the same names in Klamm and Kafka."""
    return {
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "ssl.keystore.location": str(files.node),
        "ssl.truststore.location": str(files.ca),
        "listener.name.ssl.ssl.enabled.protocols": "TLSv1.3",
        "listener.name.sasl_ssl.ssl.enabled.protocols": "TLSv1.3",
        "listener.name.admin.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": MECHANISM,
    }


def _protocols(**more: str) -> str:
    return ",".join(f"{name}:{protocol}" for name, protocol in {**LISTENERS, **more}.items())


def _prepared(secured: SecuredPeer, *, has_authorizer: bool) -> SecuredPeer:
    """Creates the user, and its rights if there is an authorizer. Then waits until each listener accepts a record."""
    bootstrap = secured.bootstrap("ADMIN")
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **secured.client("ADMIN")})
    admin.list_topics(timeout=START_S)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    upsertion = UserScramCredentialUpsertion(USER, info, secured.password.encode())
    admin.alter_user_scram_credentials([upsertion])[USER].result(TIMEOUT_S)
    if has_authorizer:
        for created in admin.create_acls(_rights()).values():
            created.result(TIMEOUT_S)
    for listener in ("PLAINTEXT", "SSL", "SASL_SSL"):
        in_a_process(first_produce, secured.bootstrap(listener), f"{TOPICS}ready", START_S, secured.client(listener))
    return secured


def _rights() -> list[AclBinding]:
    def allow(kind: ResourceType, name: str, user: str) -> AclBinding:
        principal, prefixed = f"User:{user}", ResourcePatternType.PREFIXED
        return AclBinding(kind, name, prefixed, principal, "*", AclOperation.ALL, AclPermissionType.ALLOW)

    names = {ResourceType.TOPIC: (TOPICS, RAW_TOPIC), ResourceType.GROUP: (GROUP,)}
    ours = [allow(kind, name, user) for kind in names for name in names[kind] for user in (USER, "ANONYMOUS")]
    return ours + [allow(ResourceType.TOPIC, f"of-{number}-", f"user-{number}") for number in range(OTHERS)]
