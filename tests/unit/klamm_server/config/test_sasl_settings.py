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


def test_scram_is_what_nobody_has_to_ask_for() -> None:
    assert ListenerSaslSettings.parse({}).sasl_enabled_mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.mark.parametrize("text", ["", "GSSAPI", "PLAIN,GSSAPI", "plain", "PLAIN,PLAIN"])
def test_other_mechanisms_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a list of SCRAM-SHA-256, SCRAM-SHA-512, PLAIN, OAUTHBEARER"):
        ListenerSaslSettings.parse({"sasl.enabled.mechanisms": text})


@pytest.mark.parametrize(
    "url", ["https://issuer/keys", "https://issuer:8443", "file:///etc/keys", "file://localhost/k"]
)
def test_where_keys_may_be(url: str) -> None:
    settings = ListenerSaslSettings.parse({**OAUTH, "sasl.oauthbearer.jwks.endpoint.url": url})
    assert settings.sasl_oauthbearer_jwks_endpoint_url == url


@pytest.mark.parametrize(
    "url",
    ["http://issuer/keys", "ftp://issuer", "/etc/keys", "file://other/k", "file:k", "https://", "https://u:p@i/", ""],
)
def test_where_keys_may_not_be(url: str) -> None:
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
def test_tokens_need_keys_and_somebody_to_be_of(given: Mapping[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ListenerSaslSettings.parse(given, "listener.name.x.")
    assert str(refused.value).startswith("listener.name.x.sasl.oauthbearer.")
    assert message in str(refused.value)


def test_who_says_so_takes_tokens_for_anybody_of_anybody() -> None:
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
def test_passwords_and_tokens_are_not_sent_as_they_are(
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


def test_scram_needs_no_tls() -> None:
    ListenerSaslSettings.parse({}).check_listener(
        Listener("OUTSIDE", SecurityProtocol.KAFKA, "broker", 9092, Security(wants_sasl=True))
    )
