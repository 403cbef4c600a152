"""The clients of a TLS listener: the settings of their handshakes, and the principals of their certificates."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import Final

from klamm.security.distinguished_name import java_text, subject_of
from klamm.security.principal_rules import PrincipalRules
from klamm_broker.kafka.net.connection import KafkaConnection
from klamm_broker.kafka.net.handshake_limit import HandshakeLimit
from klamm_server.security.auditor import CERTIFICATE, Auditor

log = logging.getLogger(__name__)

_ABOUT_CERTIFICATES: Final = ("CERTIFICATE_VERIFY_FAILED", "PEER_DID_NOT_RETURN_A_CERTIFICATE")


class TlsClients:
    """The clients of one TLS listener."""

    def __init__(
        self,
        context: Callable[[], ssl.SSLContext],
        rules: PrincipalRules,
        *,
        timeout_ms: int,
        limit: HandshakeLimit,
        names_clients: bool = True,
        listener: str = "",
        auditor: Auditor | None = None,
    ) -> None:
        """`context` returns the current TLS context. `limit` bounds the handshakes under way. Without `names_clients`,
        certificates only admit clients, and their logins name them. `auditor` records clients that certificates
        name."""
        self.limit = limit
        self.context = context
        self.timeout_ms = timeout_ms
        self._rules = rules
        self._names_clients = names_clients
        self._listener = listener
        self._auditor = auditor

    def recognise(self, connection: KafkaConnection) -> bool:
        """Sets the connection's principal and its certificate's end. Returns False, and logs it, if no mapping rule
        matches the certificate."""
        tls = connection.tls
        certificate = tls.getpeercert(binary_form=True)
        if certificate is None:
            return True
        ends = (tls.getpeercert() or {})["notAfter"]
        assert isinstance(ends, str), ends
        connection.expires_ms = 1000 * ssl.cert_time_to_seconds(ends)
        return not self._names_clients or self._name(connection, certificate)

    def _name(self, connection: KafkaConnection, certificate: bytes) -> bool:
        subject = java_text(subject_of(certificate))
        name = self._rules.name(subject)
        if name is None:
            log.warning(
                "client=%s connection closed: no rule of ssl.principal.mapping.rules matches the certificate's name %r",
                connection.peer,
                subject,
            )
            self._record("User:", connection.peer, f"no rule matches the certificate's name {subject!r}")
            return False
        connection.principal = f"User:{name}"
        self._record(connection.principal, connection.peer)
        return True

    def refuse(self, peer: str, reason: str) -> None:
        """Notes a handshake that failed for OpenSSL's `reason`. The audit records it if the certificate was the
        reason."""
        if any(about_certificate in reason for about_certificate in _ABOUT_CERTIFICATES):
            self._record("User:", peer, reason)

    def _record(self, principal: str, peer: str, failure: str = "") -> None:
        if self._auditor is not None:
            self._auditor.logged_in(principal, peer, CERTIFICATE, self._listener, failure)
