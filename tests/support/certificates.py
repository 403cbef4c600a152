"""Makes certificates for tests, with one CA of each name per process, and the settings that name their files."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from klamm.security.dev_certificates import DevCa, SignedKey

NOW = datetime.now(UTC)
LATER = NOW + timedelta(days=365)


def ca(name: str = "Test CA") -> DevCa:
    """Returns the CA of that name."""
    return _ca(name)


@functools.cache
def _ca(name: str) -> DevCa:
    return DevCa.make(now=NOW, name=name)


@functools.cache
def server(name: str = "server", *hosts: str, of: str = "Test CA", valid_days: int = 90) -> SignedKey:
    """Returns a server's certificate, for localhost unless hosts are given."""
    return ca(of).for_server(name, hosts or ("localhost", "127.0.0.1", "::1"), now=NOW, valid_days=valid_days)


@functools.cache
def client(name: str = "client", *, of: str = "Test CA", valid_days: int = 90) -> SignedKey:
    """Returns a client's certificate."""
    return ca(of).for_client(name, now=NOW, valid_days=valid_days)


class Stores(NamedTuple):
    """The paths of a keystore and a truststore."""

    keystore: Path
    truststore: Path

    def settings(self) -> dict[str, str]:
        """Returns the settings for both files, by Kafka's names."""
        return {"ssl.keystore.location": str(self.keystore), "ssl.truststore.location": str(self.truststore)}


def write_stores(directory: Path, signed: SignedKey, *, trusts: DevCa | None = None) -> Stores:
    """Writes the files of this key and of the CA that its owner trusts. A later call replaces each file in one step."""
    directory.mkdir(parents=True, exist_ok=True)
    stores = Stores(directory / "keystore.pem", directory / "truststore.pem")
    replace(stores.keystore, signed.keystore_pem)
    replace(stores.truststore, (trusts or ca()).signed.certificate_pem)
    return stores


def replace(path: Path, text: str) -> None:
    """Writes a private file beside the old one, and then replaces the old one."""
    new = path.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(text)
    new.rename(path)
