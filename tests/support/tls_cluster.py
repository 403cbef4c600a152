"""A cluster whose Kafka clients use TLS, and the settings of such clients."""

from __future__ import annotations

import pathlib

from tests.support import certificates
from tests.support.klamm_process import KlammProcess
from tests.support.ports import free_ports

HOST = "localhost"


class TlsCluster:
    """`klamm up` with three TLS listeners for Kafka clients: SSL, MUTUAL, which requires certificates, and HASTY, which
    soon cuts off a silent client."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        grpc, self.plain, self.tls, self.mutual, self.hasty = free_ports(range(5))
        self.grpc = grpc
        self.server = certificates.write_stores(directory / "server", certificates.server())
        self.settings = {
            "listeners": f"GRPC://127.0.0.1:{grpc},PLAINTEXT://127.0.0.1:{self.plain},SSL://{HOST}:{self.tls},"
            f"MUTUAL://{HOST}:{self.mutual},HASTY://{HOST}:{self.hasty}",
            "listener.security.protocol.map": "MUTUAL:SSL,HASTY:SSL",
            **self.server.settings(),
            "listener.name.hasty.ssl.handshake.timeout.ms": "500",
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
        }
        self.process: KlammProcess

    def client(self, *, signed: str | None = None, of: str = "Test CA", port: int | None = None) -> dict[str, str]:
        """Returns librdkafka's settings. If `signed` is set, the client shows a certificate of that name."""
        trusted = self.server.truststore
        settings = {
            "bootstrap.servers": f"{HOST}:{port or self.tls}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(trusted),
        }
        if signed is not None:
            shown = certificates.write_stores(self.directory / f"{signed}-{of}", certificates.client(signed, of=of))
            settings |= {"ssl.certificate.location": str(shown.keystore), "ssl.key.location": str(shown.keystore)}
        return settings

    def log(self) -> str:
        return self.process.log_path.read_text()

    def by_tls(self) -> dict[str, str]:
        """Returns librdkafka's settings for a client without a certificate."""
        return self.client()

    def by_certificate(self) -> dict[str, str]:
        """Returns librdkafka's settings for a client that shows a certificate."""
        return self.client(signed="alice", port=self.mutual)
