from __future__ import annotations

from collections.abc import Mapping

import pytest

from klamm.errors import ConfigError
from klamm_server.config.sasl_settings import ListenerSaslSettings
from klamm_server.net.listeners import Listener, Security, SecurityProtocol

OAUTH = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "https://issuer/keys",
    "sasl.oauthbearer.expected.audience": "klamm,other",
    "sasl.oauthbearer.expected.issuer": "https://issuer",
}


def without(*names: str) -> dict[str, str]:
    return {name: text for name, text in OAUTH.items() if name not in names}


def test_the_scram_mechanisms_are_enabled_by_default() -> None:
    assert ListenerSaslSettings.parse({}).sasl_enabled_mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.mark.parametrize("text", ["", "GSSAPI", "PLAIN,GSSAPI", "plain", "PLAIN,PLAIN"])
def test_unknown_or_repeated_mechanisms_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a list of SCRAM-SHA-256, SCRAM-SHA-512, PLAIN, OAUTHBEARER"):
        ListenerSaslSettings.parse({"sasl.enabled.mechanisms": text})


@pytest.mark.parametrize(
    "url", ["https://issuer/keys", "https://issuer:8443", "file:///etc/keys", "file://localhost/k"]
)
def test_a_jwks_endpoint_may_be_an_https_or_file_url(url: str) -> None:
    settings = ListenerSaslSettings.parse({**OAUTH, "sasl.oauthbearer.jwks.endpoint.url": url})
    assert settings.sasl_oauthbearer_jwks_endpoint_url == url


@pytest.mark.parametrize(
    "url",
    ["http://issuer/keys", "ftp://issuer", "/etc/keys", "file://other/k", "file:k", "https://", "https://u:p@i/", ""],
)
def test_a_jwks_endpoint_with_another_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="expected a URL that begins with https:// or file:///"):
        ListenerSaslSettings.parse({**OAUTH, "sasl.oauthbearer.jwks.endpoint.url": url})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (without("sasl.oauthbearer.jwks.endpoint.url"), "sasl.oauthbearer.jwks.endpoint.url is not set"),
        (
            without("sasl.oauthbearer.expected.audience"),
            "sasl.oauthbearer.expected.audience is not set: expected one, or"
            " sasl.oauthbearer.allow.unverified.audience=true",
        ),
        (without("sasl.oauthbearer.expected.issuer"), "sasl.oauthbearer.allow.unverified.issuer=true"),
    ],
)
def test_oauthbearer_without_keys_audience_or_issuer_is_refused(given: Mapping[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ListenerSaslSettings.parse(given, "listener.name.x.")
    assert str(refused.value).startswith("listener.name.x.sasl.oauthbearer.")
    assert message in str(refused.value)


def test_tokens_of_any_audience_and_issuer_can_be_allowed_explicitly() -> None:
    given = without("sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer")
    allowed = {f"sasl.oauthbearer.allow.unverified.{what}": "true" for what in ("audience", "issuer")}
    assert ListenerSaslSettings.parse({**given, **allowed}).sasl_oauthbearer_expected_issuer is None


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
@pytest.mark.parametrize(
    ("host", "security", "allows", "is_taken"),
    [
        ("broker", Security(wants_sasl=True), "", False),
        ("broker", Security(wants_sasl=True), "itself", True),
        ("broker", Security(wants_sasl=True), "the other one", False),
        ("127.0.0.1", Security(wants_sasl=True), "", True),
        ("broker", Security(is_encrypted=True, wants_sasl=True), "", True),
    ],
)
def test_plain_and_oauthbearer_need_tls_or_loopback_or_an_explicit_setting(
    mechanism: str, host: str, security: Security, allows: str, is_taken: bool
) -> None:
    allowed = [one for one in ("plain", "oauthbearer") if allows and (one == mechanism.lower()) is (allows == "itself")]
    own = {f"sasl.{one}.allow.unencrypted": "true" for one in allowed}
    settings = ListenerSaslSettings.parse({**OAUTH, "sasl.enabled.mechanisms": mechanism, **own})
    listener = Listener("OUTSIDE", SecurityProtocol.KAFKA, host, 9092, security)
    if is_taken:
        settings.check_listener(listener)
        return
    with pytest.raises(ConfigError, match="OUTSIDE is SASL_PLAINTEXT at broker:9092: expected TLS"):
        settings.check_listener(listener)


def test_scram_is_allowed_without_tls() -> None:
    ListenerSaslSettings.parse({}).check_listener(
        Listener("OUTSIDE", SecurityProtocol.KAFKA, "broker", 9092, Security(wants_sasl=True))
    )
