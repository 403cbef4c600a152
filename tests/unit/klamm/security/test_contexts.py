"""Tests handshakes between contexts made from settings: accepted certificates, and refused protocols."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import pytest

from klamm.errors import ConfigError
from klamm.security.contexts import check_mutual_trust, client_context, handshake, server_context
from klamm.security.dev_certificates import DevCa, SignedKey
from klamm.security.material import load_material
from klamm.security.tls_settings import ListenerTlsSettings, TlsSettings
from klamm.setting import parse
from tests.support.certificates import NOW, ca, client, server

CA, SERVER, FOREIGN = ca(), server(), "Foreign CA"


def texts(signed: SignedKey | None, trusts: DevCa | None) -> dict[str, str]:
    given: dict[str, str] = {}
    if signed is not None:
        given |= {"ssl.keystore.key": signed.key_pem, "ssl.keystore.certificate.chain": signed.certificate_pem}
    if trusts is not None:
        given["ssl.truststore.certificates"] = trusts.signed.certificate_pem
    return given


def serving(signed: SignedKey = SERVER, trusts: DevCa | None = CA, **given: str) -> ssl.SSLContext:
    settings = listener(signed, trusts, **given)
    return server_context(settings, load_material(settings, now=NOW))


def listener(signed: SignedKey, trusts: DevCa | None, **given: str) -> ListenerTlsSettings:
    return ListenerTlsSettings.parse({**texts(signed, trusts), **dotted(given)})


def dialling(signed: SignedKey | None = None, trusts: DevCa | None = CA, **given: str) -> ssl.SSLContext:
    settings = TlsSettings(**parse(TlsSettings, {**texts(signed, trusts), **dotted(given)}))
    return client_context(settings, load_material(settings, now=NOW))


def dotted(given: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in given.items()}


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("auth", ["none", "requested", "required"])
def test_a_client_and_a_server_of_one_ca_complete_the_handshake(version: str, auth: str) -> None:
    handshake(serving(ssl_client_auth=auth), dialling(client(), ssl_enabled_protocols=version), "localhost")


@pytest.mark.parametrize(
    ("serves", "dials", "host", "told"),
    [
        (serving(server(of=FOREIGN)), dialling(), "localhost", "unable to get local issuer certificate"),
        (serving(), dialling(trusts=None), "localhost", "self-signed certificate in certificate chain"),
        (serving(), dialling(), "other", "Hostname mismatch"),
        (serving(), dialling(), "127.0.0.2", "IP address mismatch"),
        (serving(ssl_client_auth="required"), dialling(), "localhost", "peer did not return a certificate"),
        (
            serving(ssl_client_auth="requested"),
            dialling(client(of=FOREIGN)),
            "localhost",
            "unable to get local issuer certificate",
        ),
        (serving(client()), dialling(), "localhost", "unsuitable certificate purpose"),
        (
            serving(ssl_enabled_protocols="TLSv1.3"),
            dialling(ssl_enabled_protocols="TLSv1.2"),
            "localhost",
            "unsupported protocol",
        ),
        (
            serving(ssl_cipher_suites="TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
            dialling(ssl_enabled_protocols="TLSv1.2"),
            "localhost",
            "no shared cipher",
        ),
    ],
)
def test_a_handshake_with_an_untrusted_or_wrong_certificate_fails(
    serves: ssl.SSLContext, dials: ssl.SSLContext, host: str, told: str
) -> None:
    with pytest.raises(ssl.SSLError) as refused:
        handshake(serves, dials, host)
    assert told.lower() in str(refused.value).lower().replace("_", " ")


def test_a_client_without_a_certificate_is_accepted_with_client_auth_requested() -> None:
    handshake(serving(ssl_client_auth="requested"), dialling(), "localhost")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_tls_versions_and_weak_cipher_suites_are_refused() -> None:
    old = dialling()
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        handshake(serving(), old, "localhost")

    weak = dialling(ssl_enabled_protocols="TLSv1.2")
    weak.set_ciphers("AES128-GCM-SHA256:ECDHE-ECDSA-AES128-SHA256")
    with pytest.raises(ssl.SSLError):
        handshake(serving(), weak, "localhost")


def test_tls_sessions_are_not_resumed_if_client_certificates_are_requested() -> None:
    assert serving(ssl_client_auth="required").num_tickets == 0
    assert serving(ssl_client_auth="requested").options & ssl.OP_NO_TICKET
    assert serving().options & (ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION)


@pytest.mark.parametrize(
    ("signed", "told"),
    [
        (server(of=FOREIGN), "unable to get local issuer certificate"),
        (client(), "unsuitable certificate purpose"),
    ],
)
def test_a_certificate_that_other_servers_would_refuse_is_a_config_error(signed: SignedKey, told: str) -> None:
    good = listener(server(), ca())
    check_mutual_trust(good, load_material(good, now=NOW))

    bad = listener(signed, ca())
    with pytest.raises(
        ConfigError, match=rf"servers with this ssl\.truststore\.location refuse its certificate: {told}"
    ):
        check_mutual_trust(bad, load_material(bad, now=NOW))
