"""A directory with certificates for a private network, which `klamm certs dev` makes.

    ca.pem, ca.key       the CA: with ca.key one can make certificates that all of these believe
    node.pem             key and certificate of the servers (ssl.keystore.location), or a file for each of them
    client.pem           key and certificate of a client
    client.properties    what a client needs, for --command-config

Only the owner may read it. An existing CA is kept, so that clients which trust it need no new one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from klamm.errors import ConfigError
from klamm.security.dev_certificates import VALID_DAYS, DevCa, SignedKey

NODE: Final = "node"
"""The common name in the certificate of all servers."""
CA_VALID_DAYS: Final = 3_650
"""The CA is valid for longer than any certificate that it signs, because all clients would need a new CA."""


@dataclass(frozen=True, slots=True)
class DevFiles:
    """The files of such a directory, by their paths."""

    directory: Path

    @property
    def ca(self) -> Path:
        """The file with the CA's certificate, which is a truststore."""
        return self.directory / "ca.pem"

    @property
    def ca_key(self) -> Path:
        """The file with the CA's private key."""
        return self.directory / "ca.key"

    @property
    def node(self) -> Path:
        """The keystore that all servers share."""
        return self.server(NODE)

    @property
    def client(self) -> Path:
        """The client's keystore."""
        return self.directory / "client.pem"

    @property
    def client_properties(self) -> Path:
        """The properties file with the client's settings."""
        return self.directory / "client.properties"

    def server(self, name: str) -> Path:
        """Returns the keystore of one server."""
        return self.directory / f"{name}.pem"

    def make(
        self, hosts: Sequence[str], *, servers: Sequence[str] = (), now: datetime, valid_days: int = VALID_DAYS
    ) -> None:
        """Writes all files for servers that clients dial by `hosts`. With `servers`, each server gets a file of its own
        and can be dialled by its name too. Otherwise, one file is for all. `now` is an aware time.

        Raises ConfigError for a CA that is no longer valid and OSError for a directory that cannot be written."""
        by_name = {name: [name, *hosts] for name in servers} or {NODE: list(hosts)}
        ca = self.make_servers(by_name, now=now, valid_days=valid_days)
        replace_secret(self.client, ca.for_client("client", now=now, valid_days=valid_days).keystore_pem)
        directory = self.directory.absolute()
        replace_secret(
            self.client_properties,
            "security.protocol=SSL\n"
            f"ssl.keystore.location={directory / self.client.name}\n"
            f"ssl.truststore.location={directory / self.ca.name}\n",
        )

    def make_servers(self, hosts: Mapping[str, Sequence[str]], *, now: datetime, valid_days: int = VALID_DAYS) -> DevCa:
        """Writes the CA's files and the keystores of servers. `hosts` has the names and addresses of each server, by
        server name. Raises the errors of `make`."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        ca = self._ca(now)
        for name, own in hosts.items():
            replace_secret(self.server(name), ca.for_server(name, own, now=now, valid_days=valid_days).keystore_pem)
        return ca

    def _ca(self, now: datetime) -> DevCa:
        ca = self.existing_ca(now)
        if ca is None:
            ca = DevCa.make(now=now, valid_days=CA_VALID_DAYS)
            replace_secret(self.ca, ca.signed.certificate_pem)
            replace_secret(self.ca_key, ca.signed.key_pem)
        return ca

    def existing_ca(self, now: datetime) -> DevCa | None:
        """Returns the CA of the directory, or None if there is none. Raises the errors of `make`."""
        if not self.ca_key.exists():
            return None
        try:
            ca = DevCa(SignedKey.read(self.ca_key.read_text(), self.ca.read_text()))
        except ValueError as error:
            raise ConfigError(f"{self.ca}: not a certificate with its key: {error}") from None
        if ca.signed.certificate.not_valid_after_utc <= now:
            until = ca.signed.certificate.not_valid_after_utc
            raise ConfigError(f"{self.ca}: the CA expired at {until}; remove {self.directory} for a new one")
        return ca


def replace_secret(path: Path, text: str) -> None:
    """Replaces a file that only its owner may read. A server that reads it at the same time gets either the whole old
    file or the whole new one."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    new.replace(path)
