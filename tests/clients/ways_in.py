"""The ways to log in at a secured cluster, and an `Identity` for each of them in the settings of each client."""

from __future__ import annotations

import enum
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec

from klamm.security.dev_certificates import SignedKey
from tests.support import certificates
from tests.support.sasl_cluster import token

USER, PASSWORD = "alice", "wonderland"
STRANGER, STRANGERS_PASSWORD = "bob", "builder"
"""A user that may neither produce nor be in the group."""
_MODULES: Final = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
}


class Way(enum.StrEnum):
    """The way in which a client identifies itself. With `SSL`, it does not, and only the connection is encrypted."""

    SSL = "SSL"
    MTLS = "mTLS"
    PLAIN = "PLAIN"
    SCRAM_256 = "SCRAM-SHA-256"
    SCRAM_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"

    @property
    def listener(self) -> str:
        return {Way.SSL: "SSL", Way.MTLS: "MTLS"}.get(self, "SASL_SSL")


class Case(enum.StrEnum):
    """The kinds of secrets and rights of an identity."""

    RIGHT = "right"
    WRONG = "wrong"
    """A foreign CA, a wrong password, a token that another key signed."""
    EXPIRED = "expired"
    NO_ACL = "no-ACL"


CELLS: Final = (
    (Way.SSL, Case.RIGHT),
    (Way.SSL, Case.WRONG),
    *((way, case) for way in (Way.MTLS, Way.OAUTHBEARER) for case in Case),
    *(
        (way, case)
        for way in (Way.PLAIN, Way.SCRAM_256, Way.SCRAM_512)
        for case in (Case.RIGHT, Case.WRONG, Case.NO_ACL)
    ),
)
"""Passwords do not expire. Behind SSL, a client without a certificate is anonymous, with every right or none."""


@dataclass(frozen=True)
class Identity:
    """One client. `user` and `password` are for PLAIN and SCRAM, and the token is for OAUTHBEARER."""

    name: str
    bootstrap: str
    way: Way
    truststore: Path
    keystore: Path | None = None
    user: str = ""
    password: str = ""
    token: str = ""
    directory: Path = Path()

    @property
    def protocol(self) -> str:
        """Kafka's `security.protocol`."""
        return "SSL" if self.way.listener != "SASL_SSL" else "SASL_SSL"

    @property
    def token_file(self) -> Path:
        """The file with the token, for Java."""
        return self.directory / f"{self.name}.jwt"


def identity(way: Way, case: Case, bootstrap: str, directory: Path) -> Identity:
    """Returns the client of that cell. Its files are written into the directory."""
    name = f"{way}.{case}"
    foreign = certificates.ca("A foreign CA")
    who = STRANGER if case is Case.NO_ACL else USER
    if way is Way.SSL:
        trusts = foreign if case is Case.WRONG else None
        stores = certificates.write_stores(directory / name, certificates.client(who), trusts=trusts)
        return Identity(name, bootstrap, way, stores.truststore)
    stores = certificates.write_stores(directory / name, _certificate(who, case))
    if way is Way.MTLS:
        return Identity(name, bootstrap, way, stores.truststore, stores.keystore)
    if way is Way.OAUTHBEARER:
        made = Identity(name, bootstrap, way, stores.truststore, token=_token(who, case), directory=directory)
        made.token_file.write_text(made.token)
        return made
    password = {Case.WRONG: "wrong", Case.NO_ACL: STRANGERS_PASSWORD}.get(case, PASSWORD)
    return Identity(name, bootstrap, way, stores.truststore, user=who, password=password)


def _certificate(who: str, case: Case) -> SignedKey:
    match case:
        case Case.WRONG:
            return certificates.client(who, of="A foreign CA")
        case Case.EXPIRED:
            return certificates.ca().for_client(who, now=certificates.NOW - timedelta(days=2), valid_days=1)
        case _:
            return certificates.client(who)


def _token(who: str, case: Case) -> str:
    key = ec.generate_private_key(ec.SECP256R1()) if case is Case.WRONG else None
    return token(who, issued_s_ago=7200 if case is Case.EXPIRED else 0, key=key)


# Each client's settings


def librdkafka(one: Identity) -> dict[str, Any]:
    """Returns the settings for confluent-kafka. kcat has no call-back for a token."""
    settings: dict[str, Any] = {
        "bootstrap.servers": one.bootstrap,
        "security.protocol": one.protocol,
        "ssl.ca.location": str(one.truststore),
    }
    if one.keystore is not None:
        settings |= {"ssl.certificate.location": str(one.keystore), "ssl.key.location": str(one.keystore)}
    if one.protocol == "SASL_SSL":
        settings["sasl.mechanism"] = str(one.way)
    if one.user:
        settings |= {"sasl.username": one.user, "sasl.password": one.password}
    if one.token:
        settings["oauth_cb"] = lambda _: (one.token, time.time() + 3600)
    return settings


def java(one: Identity) -> dict[str, str]:
    """Returns the settings for Kafka's own client, which Spark uses too."""
    settings = {
        "bootstrap.servers": one.bootstrap,
        "security.protocol": one.protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(one.truststore),
    }
    if one.keystore is not None:
        settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(one.keystore)}
    if one.protocol == "SASL_SSL":
        module = f"org.apache.kafka.common.security.{_MODULES[one.way]} required"
        login = f' username="{one.user}" password="{one.password}"' if one.user else ""
        settings |= {"sasl.mechanism": str(one.way), "sasl.jaas.config": f"{module}{login};"}
    if one.token:
        handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        settings |= {
            "sasl.oauthbearer.token.endpoint.url": one.token_file.as_uri(),
            "sasl.login.callback.handler.class": handler,
        }
    return settings


def aiokafka(one: Identity, token_provider: Callable[[str], Any]) -> dict[str, Any]:
    """`token_provider` makes what its clients ask for tokens."""
    context = ssl.create_default_context(cafile=one.truststore)
    if one.keystore is not None:
        context.load_cert_chain(one.keystore)
    settings = {"bootstrap_servers": one.bootstrap, "security_protocol": one.protocol, "ssl_context": context}
    return settings | dict(_python_login(one, token_provider))


def kafka_python(one: Identity, token_provider: Callable[[str], Any]) -> dict[str, Any]:
    """Returns the settings for kafka-python, as `aiokafka` does for its client."""
    settings: dict[str, Any] = {
        "bootstrap_servers": one.bootstrap,
        "security_protocol": one.protocol,
        "ssl_cafile": str(one.truststore),
    }
    if one.keystore is not None:
        settings |= {"ssl_certfile": str(one.keystore), "ssl_keyfile": str(one.keystore)}
    return settings | dict(_python_login(one, token_provider))


def _python_login(one: Identity, token_provider: Callable[[str], Any]) -> Iterator[tuple[str, Any]]:
    if one.protocol == "SASL_SSL":
        yield "sasl_mechanism", str(one.way)
    if one.user:
        yield "sasl_plain_username", one.user
        yield "sasl_plain_password", one.password
    if one.token:
        yield "sasl_oauth_token_provider", token_provider(one.token)
