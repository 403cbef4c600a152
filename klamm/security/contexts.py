"""Makes OpenSSL's contexts for both ends of connections, from settings and their keys and certificates.

The contexts allow TLS 1.2 and 1.3 with forward secrecy and authenticated encryption, without compression and
renegotiation."""

from __future__ import annotations

import os
import ssl
from typing import Final

from klamm.errors import ConfigError
from klamm.security.alerts import AlertingContext
from klamm.security.material import TlsMaterial
from klamm.security.tls_settings import CIPHER_SUITES, ListenerTlsSettings, TlsSettings

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def server_context(settings: ListenerTlsSettings, material: TlsMaterial) -> ssl.SSLContext:
    """Returns the TLS context of a listener's connections (`AlertingContext`). Raises ConfigError if OpenSSL refuses
    the material."""
    context = _filled(AlertingContext(ssl.PROTOCOL_TLS_SERVER), settings, material)
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    context.verify_mode = _CLIENT_AUTH[settings.ssl_client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        # A resumed session would not check the client's certificate again.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context


def client_context(settings: TlsSettings, material: TlsMaterial) -> ssl.SSLContext:
    """Returns the TLS context for connections to servers, whose names are verified. Raises ConfigError if OpenSSL
    refuses the material."""
    context = _filled(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), settings, material)
    if material.trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def check_mutual_trust(settings: ListenerTlsSettings, material: TlsMaterial) -> None:
    """Checks the material of a listener that connects servers, which share their CAs. Raises ConfigError if the
    material's own truststore would refuse its certificate from a server or from a client."""
    server, client = server_context(settings, material), client_context(settings, material)
    server.verify_mode = ssl.CERT_REQUIRED
    client.check_hostname = False
    try:
        handshake(server, client)
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", None) or error.reason
        raise ConfigError(
            f"ssl.keystore.location: servers with this ssl.truststore.location refuse its certificate: {reason}"
        ) from None


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str | None = None) -> None:
    """Makes a handshake between two contexts in memory. Raises ssl.SSLError if a real handshake would fail."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    # Each message needs one turn. In TLS 1.3, a refused client reads the refusal only after its own end of the
    # handshake.
    for _ in range(4):
        ends = [end for end in ends if not _is_done(end)]
    assert not ends, "a handshake takes three turns"


def _is_done(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _filled(context: ssl.SSLContext, settings: TlsSettings, material: TlsMaterial) -> ssl.SSLContext:
    versions = [_VERSIONS[name] for name in settings.ssl_enabled_protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_ciphers(":".join(CIPHER_SUITES[name] for name in settings.ssl_cipher_suites or CIPHER_SUITES))
    # Trust the certificates of the truststore even if they are not roots, as Java does.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if material.trusted is not None:
        context.load_verify_locations(cadata=material.trusted)
    if material.key is not None:
        _load_chain(context, material.key.reveal() + material.chain)
    return context


def _load_chain(context: ssl.SSLContext, pem: str) -> None:
    """Loads the certificate chain and its key. OpenSSL's binding reads them only from files, so this uses a file in
    memory without a name."""
    with os.fdopen(os.memfd_create("tls", os.MFD_CLOEXEC), "wb") as file:
        file.write(pem.encode())
        file.flush()
        try:
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        except ssl.SSLError as error:
            raise ConfigError(f"ssl.keystore.location: OpenSSL does not take it: {error.reason}") from None
