"""The files that secure a cluster on one machine. They are made once, in the `security` directory of its data.

    ca.pem, ca.key, node.pem    the CA and the servers' certificate, which is renewed 30 days before its end
    client.properties           the login of the user admin, for Kafka's tools and --command-config of klamm
    librdkafka.conf             the same for librdkafka: kcat -F

Only the owner may read the directory. A rename creates the complete directory after the bootstrap records with the user
were written. So a start that fails earlier leaves no directory `security`, and the next start begins again.
"""

from __future__ import annotations

import secrets
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from klamm.errors import KlammError
from klamm.secret import Secret
from klamm.security.dev_files import NODE, DevFiles, replace_secret
from klamm.security.sasl.scram_keys import ScramMechanism
from klamm_controller.log.bootstrap import NewUser, remove_bootstrap_records, user_records, write_bootstrap_records
from klamm_embedded.layout import LOOPBACK, SERVERS_LISTENER
from klamm_server.config.sasl_settings import PLAIN
from klamm_server.runtime.disk import Disk

ADMIN: Final = "admin"
NODE_RENEWED_DAYS: Final = 30
"""The servers' certificate is renewed this many days before its end."""
_ITERATIONS: Final = 4_096
"""The iterations of SCRAM. A password of 32 random bytes cannot be guessed, so few iterations are enough."""


@dataclass(frozen=True, slots=True)
class SecuredFiles:
    """The directory of the files that secure a cluster. `prepare` creates the missing files."""

    data_dir: Path

    @property
    def directory(self) -> Path:
        return self.data_dir.absolute() / "security"

    @property
    def client_properties(self) -> Path:
        return self.directory / "client.properties"

    @property
    def librdkafka(self) -> Path:
        return self.directory / "librdkafka.conf"

    def settings(self) -> dict[str, str]:
        """Returns the settings with which the servers of a secured cluster start."""
        files = DevFiles(self.directory)
        return {
            "listener.security.protocol.map": f"{SERVERS_LISTENER}:GRPC_SSL",
            "inter.broker.listener.name": SERVERS_LISTENER,
            f"listener.name.{SERVERS_LISTENER.lower()}.ssl.client.auth": "required",
            "ssl.keystore.location": str(files.node),
            "ssl.truststore.location": str(files.ca),
            "sasl.enabled.mechanisms": ",".join((*(mechanism.mechanism_name for mechanism in ScramMechanism), PLAIN)),
            "authorizer.class.name": "StandardAuthorizer",
            "super.users": f"User:{ADMIN};User:CN={NODE}",
        }

    def prepare(self, controllers: Sequence[Path], hosts: Sequence[str]) -> None:
        """Creates all files if there are none. Otherwise renews the servers' certificate if it ends soon or lacks one
        of `hosts`. `controllers` are the metadata directories of the controllers.

        Raises KlammError if the cluster was started without security before, or if a directory cannot be used."""
        names = sorted({*hosts, "localhost", LOOPBACK, "::1", socket.gethostname()})
        try:
            if not self.directory.exists():
                self._make(controllers, names)
            elif self._is_node_to_be_renewed(names):
                DevFiles(self.directory).make_servers({NODE: names}, now=datetime.now(UTC))
        except OSError as error:
            raise KlammError(f"the directory {self.directory} cannot be used: {error.strerror}") from error

    def _make(self, controllers: Sequence[Path], names: Sequence[str]) -> None:
        password = Secret(secrets.token_urlsafe(32))
        users = [NewUser(ADMIN, mechanism, password, _ITERATIONS) for mechanism in ScramMechanism]
        records = user_records(users)
        for controller in controllers:
            remove_bootstrap_records(Disk(), controller)
            try:
                write_bootstrap_records(controller, records)
            except KlammError as error:
                raise KlammError(f"{self.data_dir} cannot be started with --secure: {error}") from error
        new = self.directory.with_name("security.new")
        shutil.rmtree(new, ignore_errors=True)
        DevFiles(new).make_servers({NODE: names}, now=datetime.now(UTC))
        ca = DevFiles(self.directory).ca
        replace_secret(new / self.client_properties.name, _lines(_java_settings(password, ca)))
        replace_secret(new / self.librdkafka.name, _lines(_librdkafka_settings(password, ca)))
        new.rename(self.directory)

    def _is_node_to_be_renewed(self, names: Sequence[str]) -> bool:
        from klamm.security.certificate_facts import certificate_facts

        node = DevFiles(self.directory).node
        own = certificate_facts(str(node), node.read_bytes(), now=datetime.now(UTC))[0]
        return own.days_left < NODE_RENEWED_DAYS or not set(names) <= {name.partition(":")[2] for name in own.names}


def require_not_secured(data_dir: Path) -> None:
    """Raises KlammError if the directory holds a secured cluster, because a start without security would give everyone
    access."""
    if SecuredFiles(data_dir).directory.exists():
        raise KlammError(f"{data_dir} holds a secured cluster: start it with --secure")


def _java_settings(password: Secret, ca: Path) -> dict[str, str]:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": ScramMechanism.SHA_512.mechanism_name,
        "sasl.jaas.config": f'{module} required username="{ADMIN}" password="{password.reveal()}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
    }


def _librdkafka_settings(password: Secret, ca: Path) -> dict[str, str]:
    # Older versions of librdkafka, such as that of Debian's kcat, send a SCRAM nonce that is refused (CVE-2024-56128).
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": PLAIN,
        "sasl.username": ADMIN,
        "sasl.password": password.reveal(),
        "ssl.ca.location": str(ca),
    }


def _lines(settings: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())
