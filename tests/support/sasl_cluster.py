"""A cluster whose Kafka clients log in, and the settings of such clients."""

from __future__ import annotations

import functools
import json
import pathlib
import time
from typing import Any

import jwt
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support import certificates
from tests.support.klamm_process import KlammProcess
from tests.support.ports import free_ports
from tests.support.waiting import patience

HOST = "localhost"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
USER, PASSWORD = "alice", "wonder,land="
ISSUER, AUDIENCE = "https://issuer", "klamm"


class SaslCluster:
    """`klamm up` with every mechanism at SASL_PLAINTEXT and SASL_SSL, and PLAINTEXT for the client that makes users."""

    def __init__(self, directory: pathlib.Path, **settings: str) -> None:
        """Prepares a cluster, which the caller starts. `settings` have underscores for dots."""
        self.directory = directory
        self.grpc, self.plaintext, self.sasl, self.sasl_ssl = free_ports(range(4))
        self.server = certificates.write_stores(directory / "server", certificates.server())
        keys = directory / "keys.json"
        keys.write_text(public_keys())
        self.settings = {
            "listeners": f"GRPC://127.0.0.1:{self.grpc},PLAINTEXT://127.0.0.1:{self.plaintext},"
            f"SASL_PLAINTEXT://{HOST}:{self.sasl},SASL_SSL://{HOST}:{self.sasl_ssl}",
            **self.server.settings(),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            **{name.replace("_", "."): text for name, text in settings.items()},
        }
        self.process: KlammProcess

    def set_password(self, user: str, password: str) -> None:
        """Sets the password for both mechanisms of SCRAM. Returns when the server of the users knows it."""
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.plaintext}"})
        infos = [
            ScramCredentialInfo(mechanism, 4096)
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for info in infos:
            wanted = [UserScramCredentialUpsertion(user, info, password.encode())]
            admin.alter_user_scram_credentials(wanted)[user].result(patience())

    def address(self, protocol: str) -> str:
        """Returns the address for clients of SASL_PLAINTEXT or SASL_SSL."""
        return f"{HOST}:{self.sasl if protocol == 'SASL_PLAINTEXT' else self.sasl_ssl}"

    def client(
        self, mechanism: str, password: str = PASSWORD, *, user: str = USER, protocol: str = "SASL_SSL"
    ) -> dict[str, Any]:
        """Returns librdkafka's settings. For OAUTHBEARER, the password is the token."""
        settings = {
            "bootstrap.servers": self.address(protocol),
            "security.protocol": protocol,
            "sasl.mechanism": mechanism,
            "ssl.ca.location": str(self.server.truststore),
        }
        if mechanism == "OAUTHBEARER":
            return {**settings, "oauth_cb": lambda _: (password, time.time() + 3600)}
        return {**settings, "sasl.username": user, "sasl.password": password}

    def log(self) -> str:
        return self.process.log_path.read_text()


def token(
    subject: str = USER,
    *,
    lifetime_s: float = 3600,
    issued_s_ago: int = 0,
    audience: str = AUDIENCE,
    key: ec.EllipticCurvePrivateKey | None = None,
) -> str:
    """Returns a token that the cluster accepts, unless the arguments make it a bad one."""
    issued_s = int(time.time()) - issued_s_ago
    claims = {"iss": ISSUER, "aud": audience, "sub": subject, "iat": issued_s, "exp": issued_s + lifetime_s}
    return jwt.encode(claims, key or _private_key(), algorithm="ES256", headers={"kid": "key"})


@functools.cache
def _private_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def public_keys() -> str:
    """Returns the JWKS document with which the server checks the tokens."""
    key = json.loads(jwt.get_algorithm_by_name("ES256").to_jwk(_private_key().public_key()))
    return json.dumps({"keys": [{**key, "kid": "key"}]})
