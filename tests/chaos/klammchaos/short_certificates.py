"""Certificates of all servers and clients that are valid for a short time, and are replaced before they expire.

Each owner has a directory with a keystore and a truststore. A new keystore takes the place of the old one in one step.
"""

from __future__ import annotations

import asyncio
import math
import pathlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from klamm.security.dev_certificates import SignedKey
from tests.support import certificates

LIFETIME_S: Final = 120.0
"""The lifetime of a certificate. It is far longer than any server or client can be kept from reading a new one."""
ROTATION_S: Final = 20.0
RELOAD_MS: Final = 1_000
"""The interval at which servers and clients look for a new certificate."""
FOREIGN: Final = "Foreign CA"
_ONE_DAY: Final = timedelta(days=1)


@dataclass(slots=True)
class Rotation:
    """One new set of all certificates."""

    serials: Mapping[str, int]
    """The serial number of each owner's certificate."""
    written_s: float = math.inf
    """The monotonic time when the last of the files was written."""


class ShortCertificates:
    """Certificates that are replaced again and again. `hosts` has the host of each server by its name. `clients` are
    names of clients, which have no host."""

    def __init__(self, directory: pathlib.Path, hosts: Mapping[str, str], clients: tuple[str, ...]) -> None:
        self.rotations: list[Rotation] = []
        """The rotations, in order."""
        self._directory = directory
        self._hosts = hosts
        self._clients = clients

    def stores(self, owner: str) -> certificates.Stores:
        """Returns the paths of the keystore and the truststore of a server or client."""
        return certificates.Stores(self._directory / owner / "keystore.pem", self._directory / owner / "truststore.pem")

    def rotate(self) -> None:
        """Writes new files for all servers and clients. Blocks."""
        signed = {owner: self._sign(owner) for owner in (*self._hosts, *self._clients)}
        rotation = Rotation({owner: one.certificate.serial_number for owner, one in signed.items()})
        # Append the rotation before any server can show one of its certificates.
        self.rotations.append(rotation)
        for owner, one in signed.items():
            certificates.write_stores(self._directory / owner, one)
        rotation.written_s = time.monotonic()

    async def rotate_again_and_again(self) -> None:
        """Rotates the certificates again and again until it is cancelled."""
        while True:
            await asyncio.sleep(ROTATION_S)
            await asyncio.to_thread(self.rotate)

    def foreign_stores(self, owner: str) -> certificates.Stores:
        """Returns the files of a certificate with that name that another CA has signed. Its owner trusts the right
        CA."""
        return certificates.write_stores(self._directory / "foreign", certificates.client(owner, of=FOREIGN))

    def _sign(self, owner: str) -> SignedKey:
        # A certificate is valid for a day. It begins in the past, so that it expires soon.
        begin = datetime.now(UTC) - _ONE_DAY + timedelta(seconds=LIFETIME_S)
        ca = certificates.ca()
        if owner in self._hosts:
            return ca.for_server(owner, (self._hosts[owner],), now=begin, valid_days=1)
        return ca.for_client(owner, now=begin, valid_days=1)
