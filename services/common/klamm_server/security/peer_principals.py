"""The principal at the other end of a gRPC connection: that of its login, or of the certificate that it has shown."""

from __future__ import annotations

import functools
import ssl
from contextvars import ContextVar
from typing import Any, Final

from klamm.acls import ANONYMOUS
from klamm.rpc.status import CallFailed, Status
from klamm.security.distinguished_name import java_text, subject_of
from klamm.security.principal_rules import PrincipalRules
from klamm_server.net.listeners import CAME_BY
from klamm_server.security.listeners_tls import ListenersTls
from klamm_server.security.server_tls import ServerTls

CERTIFICATES_MAX: Final = 1_024
"""The maximum number of principals that are cached by certificate."""

LOGGED_IN: ContextVar[str | None] = ContextVar("logged_in", default=None)
"""The principal of the login to which the call under way belongs, or None if clients do not log in at its listener."""


class PeerPrincipals:
    """The principals of gRPC callers. The `ssl.principal.mapping.rules` of a call's listener turn certificates into
    names."""

    def __init__(self, tls: ListenersTls) -> None:
        self._tls = tls
        self._name_of = functools.lru_cache(CERTIFICATES_MAX)(self._mapped)

    def of(self, context: Any) -> str:
        """Returns the principal of the caller's login or certificate, or User:ANONYMOUS without either. Raises
        CallFailed(UNAUTHENTICATED) if no rule matches the certificate's name."""
        logged_in = LOGGED_IN.get()
        if logged_in is not None:
            return logged_in
        listener = CAME_BY.get()
        if self._tls.of(listener) is None:
            return ANONYMOUS
        shown = context.auth_context().get("x509_pem_cert")
        return self._name_of(listener, shown[0]) if shown else ANONYMOUS

    def own(self) -> str:
        """Returns this server's principal at other servers, if these have the same mapping rules. It is User:ANONYMOUS
        if servers show no certificates."""
        tls = self._tls.between_servers
        if tls is None or tls.settings.ssl_client_auth != "required":
            return ANONYMOUS
        return _principal(tls, tls.own_certificate)

    def _mapped(self, listener: str, certificate: bytes) -> str:
        tls = self._tls.of(listener)
        assert tls is not None, listener
        return _principal(tls, certificate.decode())


def _principal(tls: ServerTls, certificate: str) -> str:
    subject = java_text(subject_of(ssl.PEM_cert_to_DER_cert(certificate)))
    name = PrincipalRules.parse(tls.settings.ssl_principal_mapping_rules).name(subject)
    if name is None:
        raise CallFailed(
            Status.UNAUTHENTICATED, f"no rule of ssl.principal.mapping.rules matches the certificate's name {subject!r}"
        )
    return f"User:{name}"
