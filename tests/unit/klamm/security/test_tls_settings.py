"""Tests which `ssl.*` settings are refused, and with which words."""

from __future__ import annotations

import pytest

from klamm.errors import ConfigError
from klamm.secret import Secret
from klamm.security.tls_settings import ListenerTlsSettings

PREFIX = "listener.name.out."
STORES = {"ssl.keystore.location": "/k.pem", "ssl.truststore.location": "/t.pem"}


def test_listener_tls_settings_have_kafkas_defaults() -> None:
    settings = ListenerTlsSettings.parse(STORES)

    assert settings.ssl_client_auth == "none"
    assert settings.ssl_enabled_protocols == ("TLSv1.2", "TLSv1.3")
    assert settings.ssl_endpoint_identification_algorithm == "https"
    assert settings.ssl_principal_mapping_rules == "DEFAULT"
    assert not settings.ssl_allow_dn_changes
    assert not settings.ssl_allow_san_changes


def test_tls_keys_and_passwords_are_secrets() -> None:
    settings = ListenerTlsSettings.parse(
        {"ssl.keystore.key": "k3y", "ssl.keystore.certificate.chain": "c", "ssl.key.password": "p4ss"}
    )

    assert settings.ssl_keystore_key == Secret("k3y")
    assert settings.ssl_key_password == Secret("p4ss")
    assert "k3y" not in repr(settings)
    assert "p4ss" not in repr(settings)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"ssl.keystore.type": "JKS"},
            "ssl.keystore.type: 'JKS' is not valid, expected PEM; a JKS store is converted by: keytool -importkeystore",
        ),
        (
            {"ssl.truststore.type": "PKCS12"},
            "ssl.truststore.type: 'PKCS12' is not valid, expected PEM; a PKCS12 store is converted by: openssl pkcs12",
        ),
        ({"ssl.client.auth": "yes"}, "ssl.client.auth: 'yes' is not valid, expected one of none, requested, required"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "expected a list of TLSv1.2 and TLSv1.3, at least one"),
        ({"ssl.enabled.protocols": ""}, "expected a list of TLSv1.2 and TLSv1.3, at least one"),
        ({"ssl.cipher.suites": "TLS_RSA_WITH_AES_128_CBC_SHA"}, "expected a list of TLS_ECDHE_ECDSA"),
        ({"ssl.endpoint.identification.algorithm": ""}, "expected https: host names are always verified"),
        ({"ssl.principal.mapping.rules": "RULE:"}, "ssl.principal.mapping.rules: 'RULE:' is not valid"),
        ({"ssl.reload.interval.ms": "0"}, "ssl.reload.interval.ms: '0' is not valid, expected at least 100"),
        ({"ssl.key.password": 7}, "ssl.key.password: the value given is not valid, expected text"),
        ({"ssl.keystore.key": "x"}, "ssl.keystore.location and ssl.keystore.key are both set"),
        ({"ssl.keystore.certificate.chain": "x"}, "one is set, expected both or none"),
        ({"ssl.truststore.certificates": "x"}, "ssl.truststore.location and ssl.truststore.certificates are both set"),
        ({"ssl.keystore.locaton": "x"}, "configuration listener.name.out.ssl.keystore.locaton; did you mean"),
    ],
)
def test_an_invalid_tls_setting_is_refused_and_named(given: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ListenerTlsSettings.parse({**STORES, **given}, PREFIX)
    assert told in str(refused.value)
    assert PREFIX in str(refused.value)


def test_a_listener_needs_a_key_and_a_truststore_if_client_auth_is_required() -> None:
    with pytest.raises(ConfigError, match=r"^listener\.name\.out\.ssl\.keystore\.location is not set"):
        ListenerTlsSettings.parse({}, PREFIX)
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location is not set: ssl\.client\.auth=required needs"):
        ListenerTlsSettings.parse({"ssl.keystore.location": "/k.pem", "ssl.client.auth": "required"})
    with pytest.raises(ConfigError, match=r"ssl\.key\.password is set, and no key"):
        ListenerTlsSettings.parse({"ssl.key.password": "x"})
