"""Klamm and Apache Kafka with the same listeners, users, rights and keys: one broker each, every way in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import admin as confluent

from tests.clients.ways_in import CELLS, PASSWORD, STRANGER, STRANGERS_PASSWORD, USER, Case, Identity, Way, identity
from tests.support import certificates
from tests.support.apache_kafka import ApacheKafka
from tests.support.authorized_cluster import MAPPING_RULES
from tests.support.klamm_process import running_cluster
from tests.support.ports import free_ports
from tests.support.sasl_cluster import AUDIENCE, ISSUER, MECHANISMS, public_keys

TOPIC, GROUP = "orders", "billing"
TIMEOUT_S = 60
_SECURED: Final = ("SSL", "MTLS", "SASL_SSL")
_SASL: Final = "org.apache.kafka.common.security"


class SecuredSide:
    """A cluster, by the addresses of its listeners. Anonymous clients of PLAINTEXT have all rights."""

    def __init__(self, directory: Path, plaintext: str, secured: Mapping[str, str], grpc: Mapping[str, str]) -> None:
        """`secured` are Kafka's listeners by name, `grpc` those of the gRPC API, which Kafka lacks."""
        self.directory = directory
        self._admin = confluent.AdminClient({"bootstrap.servers": plaintext})
        self._identities = {
            cell: identity(*cell, secured[cell[0].listener], directory / "identities") for cell in CELLS
        }
        self._grpc = grpc

    def identity(self, way: Way, case: Case) -> Identity:
        return self._identities[way, case]

    def grpc(self, way: Way) -> str:
        """Returns the address at which Klamm's clients log in that way."""
        return self._grpc[way.listener]

    def prepare(self) -> None:
        """Makes the topic with a record, the users, and their rights."""
        for made in self._admin.create_topics([confluent.NewTopic(TOPIC, 1, 1)]).values():
            made.result(TIMEOUT_S)
        for user, password in ((USER, PASSWORD), (STRANGER, STRANGERS_PASSWORD)):
            for mechanism in (confluent.ScramMechanism.SCRAM_SHA_256, confluent.ScramMechanism.SCRAM_SHA_512):
                info = confluent.ScramCredentialInfo(mechanism, 4096)
                wanted = [confluent.UserScramCredentialUpsertion(user, info, password.encode())]
                self._admin.alter_user_scram_credentials(wanted)[user].result(TIMEOUT_S)
        topic, group = (confluent.ResourceType.TOPIC, TOPIC), (confluent.ResourceType.GROUP, GROUP)
        write, read = confluent.AclOperation.WRITE, confluent.AclOperation.READ
        rights = [(USER, write, topic), (USER, read, topic), (USER, read, group)]
        # Without these it would matter what a client asks for first: topic or group, producer id or append.
        rights += [(STRANGER, read, topic), (STRANGER, write, (confluent.ResourceType.TOPIC, f"{TOPIC}-of-others"))]
        entries = [
            confluent.AclBinding(
                *resource,
                confluent.ResourcePatternType.LITERAL,
                f"User:{who}",
                "*",
                operation,
                confluent.AclPermissionType.ALLOW,
            )
            for who, operation, resource in rights
        ]
        for created in self._admin.create_acls(entries).values():
            created.result(TIMEOUT_S)


@contextlib.contextmanager
def klamm_side(directory: Path) -> Iterator[SecuredSide]:
    """`klamm up`."""
    ports = free_ports(range(8))
    plaintext, grpc = ports[:2]
    secured = dict(zip(_SECURED, ports[2:5], strict=True))
    ours = dict(zip(_SECURED, ports[5:], strict=True))
    listeners = [
        f"GRPC://127.0.0.1:{grpc}",
        f"PLAINTEXT://127.0.0.1:{plaintext}",
        *(f"{name}://localhost:{port}" for name, port in secured.items()),
        *(f"G{name}://localhost:{port}" for name, port in ours.items()),
    ]
    security = {
        **{each: each for each in ("GRPC", "PLAINTEXT", *_SECURED)},
        "MTLS": "SSL",
        "GSSL": "GRPC_SSL",
        "GMTLS": "GRPC_SSL",
        "GSASL_SSL": "GRPC_SASL_SSL",
    }
    settings = {
        **_shared(directory),
        "listeners": ",".join(listeners),
        "listener.security.protocol.map": ",".join(f"{name}:{each}" for name, each in security.items()),
        "listener.name.gmtls.ssl.client.auth": "required",
    }
    with running_cluster(directory, settings, port=grpc):
        made = SecuredSide(
            directory,
            f"127.0.0.1:{plaintext}",
            {name: f"localhost:{port}" for name, port in secured.items()},
            {name: f"localhost:{port}" for name, port in ours.items()},
        )
        made.prepare()
        yield made


@contextlib.contextmanager
def kafka_side(directory: Path) -> Iterator[SecuredSide]:
    """Apache Kafka. Skips the test where Java or Maven is missing."""
    settings = {
        **_shared(directory),
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,MTLS:SSL,SASL_SSL:SASL_SSL",
        **{f"listener.name.sasl_ssl.{name}": text for name, text in _jaas()},
    }
    keys = settings["sasl.oauthbearer.jwks.endpoint.url"]
    allowed = f"org.apache.kafka.sasl.oauthbearer.allowed.urls={keys}"
    kafka = ApacheKafka(directory, settings=settings, secured=_SECURED, properties=[allowed])
    try:
        kafka.start()
        made = SecuredSide(directory, kafka.bootstrap, kafka.secured_bootstraps, {})
        made.prepare()
        yield made
    finally:
        kafka.kill()


def _shared(directory: Path) -> dict[str, str]:
    stores = certificates.write_stores(directory / "server", certificates.server("broker"))
    keys = directory / "keys.json"
    keys.write_text(public_keys())
    return {
        **stores.settings(),
        "listener.name.mtls.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": MAPPING_RULES,
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "auto.create.topics.enable": "false",
    }


def _jaas() -> Iterator[tuple[str, str]]:
    """Yields Kafka's setting for each mechanism. The users of PLAIN are in the setting itself."""
    users = f'user_{USER}="{PASSWORD}" user_{STRANGER}="{STRANGERS_PASSWORD}"'
    yield "plain.sasl.jaas.config", f"{_SASL}.plain.PlainLoginModule required {users};"
    for mechanism in ("scram-sha-256", "scram-sha-512"):
        yield f"{mechanism}.sasl.jaas.config", f"{_SASL}.scram.ScramLoginModule required;"
    yield "oauthbearer.sasl.jaas.config", f"{_SASL}.oauthbearer.OAuthBearerLoginModule required;"
    handler = f"{_SASL}.oauthbearer.OAuthBearerValidatorCallbackHandler"
    yield "oauthbearer.sasl.server.callback.handler.class", handler
