"""Checks that servers begin to use certificates that change, by connecting to each listener again and again.

A server that answers all the time must show the newest certificate soon after it was written. A server that was dead,
frozen or cut off has the same time again after it answers.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Sequence
from typing import Final

from cryptography import x509

from tests.chaos.klammchaos.figures import quantile
from tests.chaos.klammchaos.partition_cluster import ADMIN, DEADLINE_S
from tests.chaos.klammchaos.secured_cluster import NODES, Endpoint, SecuredCluster
from tests.chaos.klammchaos.short_certificates import RELOAD_MS, ROTATION_S, Rotation

PATIENCE_S: Final = RELOAD_MS / 1000 + 14.0
"""The longest time until a new certificate is shown, on machines that have other work too."""
PAUSE_S: Final = 2.0
"""The pause between two connections to the same listener."""
HANDSHAKE_S: Final = 3.0
"""A server that is silent for this time does not answer."""


class ServedCertificates:
    """The certificates that one listener of a server shows, while the server's `rotations` grow. Times are
    monotonic."""

    def __init__(self, name: str, owner: str, rotations: Sequence[Rotation]) -> None:
        self.taken_up_s: dict[int, float] = {}
        """The times from the writing of a certificate until it was first seen, by the number of its rotation."""
        self._name = name
        self._owner = owner
        self._rotations = rotations
        self._answers_since_s: float | None = None

    def silent(self) -> None:
        """Notes that the server did not answer."""
        self._answers_since_s = None

    def shown(self, serial: int, began_s: float) -> None:
        """Notes that a handshake that began at `began_s` showed the certificate with this serial number. Raises
        AssertionError if the server should have shown a newer one."""
        serials = [rotation.serials[self._owner] for rotation in self._rotations]
        assert serial in serials, f"{self._name} shows a certificate that nobody made: {serial:x}"
        number = serials.index(serial)
        if self._answers_since_s is None:
            self._answers_since_s = began_s
        for later in range(number + 1, len(serials)):
            late_s = self._known_for_s(later, began_s)
            assert late_s <= PATIENCE_S, (
                f"{self._name} shows certificate {number} {late_s:.1f} s after it could read certificate {later}"
            )
        self.taken_up_s.setdefault(number, max(0.0, self._known_for_s(number, began_s)))

    def _known_for_s(self, number: int, now_s: float) -> float:
        """Returns how long the server could have known that certificate."""
        assert self._answers_since_s is not None
        return now_s - max(self._rotations[number].written_s, self._answers_since_s)

    def __str__(self) -> str:
        times_s = list(self.taken_up_s.values())
        return (
            f"{self._name}: {len(times_s)} of {len(self._rotations)} certificates were seen,"
            f" p50 {quantile(times_s, 50):.1f} s and at most {max(times_s):.1f} s after they were written"
        )


class CertificateWatcher:
    """Connects to all listeners of a cluster again and again, and checks their certificates."""

    def __init__(self, cluster: SecuredCluster) -> None:
        self._cluster = cluster
        rotations = cluster.certificates.rotations
        self._endpoints = {
            endpoint: ServedCertificates(
                f"{NODES[endpoint.node]} at {endpoint.listener}", NODES[endpoint.node], rotations
            )
            for endpoint in cluster.endpoints
        }

    async def run(self, written: asyncio.Event) -> None:
        """Watches all listeners. In the end, each of them must show the certificate that is the newest then."""
        await asyncio.gather(*(self._watch(endpoint, written) for endpoint in self._endpoints))
        for served in self._endpoints.values():
            print(served, flush=True)

    async def _watch(self, endpoint: Endpoint, written: asyncio.Event) -> None:
        while not written.is_set():
            await self._look(endpoint)
            await asyncio.sleep(PAUSE_S)
        # The next certificate is written while no fault strikes.
        newest = len(self._cluster.certificates.rotations)
        until_s = time.monotonic() + ROTATION_S + DEADLINE_S / 2
        while max(self._endpoints[endpoint].taken_up_s, default=-1) < newest:
            await self._look(endpoint)
            assert time.monotonic() < until_s, (
                f"{NODES[endpoint.node]} at {endpoint.listener} does not show certificate {newest}"
            )
            await asyncio.sleep(PAUSE_S / 4)

    async def _look(self, endpoint: Endpoint) -> None:
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                serial = await self._shown_serial(endpoint)
        except (OSError, TimeoutError):
            self._endpoints[endpoint].silent()
        else:
            self._endpoints[endpoint].shown(serial, began_s)

    async def _shown_serial(self, endpoint: Endpoint) -> int:
        stores = self._cluster.certificates.stores(ADMIN)
        context = ssl.create_default_context(cafile=stores.truststore)
        context.load_cert_chain(stores.keystore)
        if endpoint.listener.startswith("GRPC"):
            context.set_alpn_protocols(["h2"])
        _, writer = await asyncio.open_connection(
            endpoint.host, endpoint.port, ssl=context, server_hostname=endpoint.host
        )
        try:
            shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            return x509.load_der_x509_certificate(shown).serial_number
        finally:
            writer.transport.abort()
