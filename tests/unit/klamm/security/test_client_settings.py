"""Tests which user a client logs in as, by settings in the style of Kafka and of librdkafka."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.errors import ConfigError
from klamm.secret import Secret
from klamm.security.client_settings import ClientSecurity, PasswordLogin, TokenLogin
from klamm.setting import parse

CANARY = "canary-s3cret"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
URL = "https://idp.example/token"


def settings(mechanism: str | None = None, **given: Any) -> ClientSecurity:
    """Returns the settings. `given` have underscores for dots."""
    named = {name.replace("_", "."): value for name, value in given.items()}
    if mechanism is not None:
        named["sasl.mechanism"] = mechanism
    return ClientSecurity(**parse(ClientSecurity, named))


@pytest.mark.parametrize(
    ("protocol", "is_encrypted", "logs_in"),
    [
        ("PLAINTEXT", False, False),
        ("SSL", True, False),
        ("SASL_PLAINTEXT", False, True),
        ("SASL_SSL", True, True),
    ],
)
def test_each_security_protocol_selects_encryption_and_login(protocol: str, is_encrypted: bool, logs_in: bool) -> None:
    made = settings(security_protocol=protocol)
    assert (made.is_encrypted, made.logs_in) == (is_encrypted, logs_in)


@pytest.mark.parametrize(
    ("mechanism", "module"), [("SCRAM-SHA-256", SCRAM), ("SCRAM-SHA-512", SCRAM), ("PLAIN", PLAIN)]
)
def test_name_and_password_are_read_from_jaas_and_from_librdkafkas_settings(mechanism: str, module: str) -> None:
    expected = PasswordLogin(name="alice", password=Secret(CANARY))
    jaas = f'{module} required username="alice" password="{CANARY}";'
    assert settings(mechanism, sasl_jaas_config=jaas).login() == expected
    assert settings(mechanism, sasl_username="alice", sasl_password=CANARY).login() == expected
    assert settings(mechanism, sasl_username="alice", sasl_password_file="/f").login() == PasswordLogin(
        name="alice", password_file="/f"
    )


def test_client_credentials_for_tokens_are_read_from_jaas_and_from_settings() -> None:
    expected = TokenLogin(url=URL, client_id="id", client_secret=Secret(CANARY), scope="s")
    own = {
        "sasl_oauthbearer_client_credentials_client_id": "id",
        "sasl_oauthbearer_client_credentials_client_secret": CANARY,
        "sasl_oauthbearer_scope": "s",
    }
    url = {"sasl_oauthbearer_token_endpoint_url": URL}
    assert settings("OAUTHBEARER", **url, **own).login() == expected
    jaas = f'{OAUTH} required clientId="id" clientSecret="{CANARY}" scope="s" extension_traceId="1";'
    found = settings("OAUTHBEARER", **url, sasl_jaas_config=jaas).login()
    assert found == TokenLogin(
        url=URL, client_id="id", client_secret=Secret(CANARY), scope="s", extensions={"traceId": "1"}
    )


def test_a_token_callback_must_be_a_function() -> None:
    def give() -> str:
        return "token"

    assert settings("OAUTHBEARER", sasl_oauthbearer_token_callback=give).login() == TokenLogin(callback=give)
    with pytest.raises(ConfigError, match="a function without arguments"):
        settings("OAUTHBEARER", sasl_oauthbearer_token_callback="give")


def test_only_kafkas_own_login_callback_handler_is_accepted() -> None:
    name = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    assert settings(sasl_login_callback_handler_class=name).sasl_login_callback_handler_class == name
    with pytest.raises(ConfigError, match="expected one of"):
        settings(sasl_login_callback_handler_class="com.evil.Handler")


@pytest.mark.parametrize(
    ("mechanism", "given", "told"),
    [
        (None, {}, "sasl.mechanism is not set, expected one of SCRAM-SHA-256"),
        ("PLAIN", {"sasl_password": CANARY}, "sasl.username is not set"),
        ("PLAIN", {"sasl_username": "alice"}, "none set, expected one"),
        (
            "PLAIN",
            {"sasl_username": "a", "sasl_password": CANARY, "sasl_password_file": "/f"},
            "two set, expected one",
        ),
        (
            "PLAIN",
            {"sasl_jaas_config": f'{PLAIN} required username="a" password="{CANARY}";', "sasl_username": "a"},
            "sasl.jaas.config and sasl.username, sasl.password or sasl.password.file are both set",
        ),
        ("PLAIN", {"sasl_jaas_config": f"{SCRAM} required password={CANARY};"}, f"names {SCRAM}, expected {PLAIN}"),
        ("PLAIN", {"sasl_jaas_config": f"com.evil.{CANARY} required;"}, "names a login module that is not known"),
        (
            "PLAIN",
            {"sasl_jaas_config": f'{PLAIN} required username="a" {CANARY}="b";'},
            "has an option that its login module does not know; expected username, password",
        ),
        (
            "SCRAM-SHA-256",
            {"sasl_jaas_config": f'{SCRAM} required username="a" password="{CANARY}" tokenauth="true";'},
            "tokenauth asks for a login by delegation token",
        ),
        ("OAUTHBEARER", {}, "none is set, expected one of them"),
        ("OAUTHBEARER", {"sasl_oauthbearer_token_endpoint_url": URL}, "client.id and .secret are not both set"),
        (
            "OAUTHBEARER",
            {"sasl_oauthbearer_token_endpoint_url": URL, "sasl_oauthbearer_token_callback": str},
            "both are set, expected one of them",
        ),
    ],
)
def test_incomplete_or_conflicting_login_settings_are_refused_without_secrets(
    mechanism: str | None, given: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        settings(mechanism, **given).login()
    assert told in str(refused.value)
    assert CANARY not in str(refused.value)


def test_a_mechanism_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigError, match="'GSSAPI' is not valid, expected one of SCRAM-SHA-256"):
        settings("GSSAPI")


def test_the_repr_of_login_settings_shows_no_secret() -> None:
    made = settings("PLAIN", sasl_username="alice", sasl_password=CANARY)
    assert CANARY not in repr(made)
    assert CANARY not in repr(made.login())
