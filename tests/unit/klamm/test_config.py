from __future__ import annotations

from dataclasses import dataclass

import pytest

from klamm.config import ClientConfig
from klamm.errors import ConfigError
from klamm.setting import boolean, integer, one_of, text


@dataclass(frozen=True, slots=True, kw_only=True)
class Example(ClientConfig):
    batch_size: int = integer(16_384, at_least=0, at_most=1_000_000, doc="Bytes.")
    color: str = text("red", valid=one_of("red", "green"), doc="Of the batch.")
    level: int | None = integer(None, doc="How high.")
    label: str | None = text(None, doc="What people read.")
    flag: bool = boolean(False, doc="Whether it flies.")


def test_dotted_names_and_keywords_mean_the_same_fields() -> None:
    config = Example.parse({"batch.size": 5, "client.id": "a"}, color="green")

    assert (config.batch_size, config.client_id, config.color) == (5, "a", "green")


def test_values_may_come_as_text_as_in_a_properties_file() -> None:
    config = Example.parse({"batch.size": "77", "flag": "True", "level": "3"})

    assert (config.batch_size, config.flag, config.level) == (77, True, 3)


def test_an_unknown_name_is_refused_with_the_most_similar_name() -> None:
    with pytest.raises(ConfigError, match=r"unknown configuration batch\.sise; did you mean batch\.size\?"):
        Example.parse({"batch.sise": 1})


def test_an_unknown_name_without_a_similar_name_is_refused_without_a_guess() -> None:
    with pytest.raises(ConfigError, match=r"^unknown configuration xyzzy$"):
        Example.parse({"xyzzy": 1})


def test_a_kafka_tuning_config_without_effect_is_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert Example.parse({"send.buffer.bytes": 131_072}, client_dns_lookup="use_all_dns_ips") == Example.parse()

    assert caplog.messages == [
        "config send.buffer.bytes=131072 has no effect in Klamm, because the operating system sizes the send buffer of"
        " a connection",
        "config client.dns.lookup='use_all_dns_ips' has no effect in Klamm, because gRPC resolves the names of hosts",
    ]


def test_a_kafka_config_of_a_missing_feature_is_refused() -> None:
    assert Example.parse({"security.protocol": "PLAINTEXT"}) == Example.parse()
    with pytest.raises(ConfigError, match=r"unknown configuration interceptor\.classes"):
        Example.parse({"interceptor.classes": "a.B"})


def test_a_sasl_login_needs_a_user_name_and_a_password() -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    with pytest.raises(ConfigError, match=r"sasl\.password, .* none set, expected one"):
        Example.parse(given)
    assert Example.parse({**given, "sasl.password": "s3cret"}).logs_in
    # As in Kafka, settings of logins have no effect without a security protocol that logs in.
    assert not Example.parse({"sasl.username": "alice"}).logs_in


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"ssl.keystore.type": "JKS"}, "expected PEM; a JKS store is converted by: keytool"),
        ({"ssl.endpoint.identification.algorithm": ""}, "expected https: host names are always verified"),
        ({"ssl.enabled.protocols": "TLSv1.3"}, "gRPC always speaks TLSv1.2 and TLSv1.3, expected both"),
        ({"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}, "gRPC chooses its own"),
        ({"ssl.keystore.location": "/a", "ssl.keystore.key": "k"}, "are both set"),
        ({"ssl.client.auth": "none"}, "unknown configuration ssl.client.auth"),
    ],
)
def test_unsupported_tls_settings_are_refused(given, told):
    with pytest.raises(ConfigError) as refused:
        Example.parse({"security.protocol": "SSL", **given})
    assert told in str(refused.value)


def test_name_given_both_ways_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"batch\.size is given twice"):
        Example.parse({"batch.size": 1}, batch_size=2)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("batch.size", -1, "0 to 1000000"),
        ("batch.size", 1_000_001, "0 to 1000000"),
        ("batch.size", True, "a whole number"),
        ("batch.size", "many", "a whole number"),
        ("batch.size", 1.5, "a whole number"),
        ("color", "blue", "one of red, green"),
        ("color", 1, "text"),
        ("label", 1, "text"),
        ("flag", "yes", "true or false"),
        ("bootstrap.servers", "", "at least one host:port"),
        ("bootstrap.servers", [], "at least one host:port"),
        ("bootstrap.servers", 9094, "items separated by commas"),
        ("bootstrap.servers", "host:port", "host:port"),
        ("bootstrap.servers", "host:70000", "host:port"),
        ("bootstrap.servers", "::1:9094", "brackets"),
    ],
)
def test_the_error_of_a_bad_value_names_setting_value_and_expectation(name: str, value: object, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Example.parse({name: value})

    assert str(caught.value).startswith(f"{name}: {value!r} is not valid, expected")
    assert expected in str(caught.value)


def test_bootstrap_servers_accept_lists_text_default_ports_and_ipv6() -> None:
    assert Example.parse(bootstrap_servers="a, b:1,[::1]").bootstrap_servers == ("a:9094", "b:1", "[::1]:9094")
    assert Example.parse(bootstrap_servers=["a:1"]).bootstrap_servers == ("a:1",)
    assert Example.parse().bootstrap_servers == ("localhost:9094",)


def test_retry_backoff_max_must_not_be_less_than_retry_backoff() -> None:
    with pytest.raises(ConfigError, match=r"retry\.backoff\.max\.ms=50 must be at least retry\.backoff\.ms=100"):
        Example.parse({"retry.backoff.max.ms": 50})


def test_an_address_in_place_of_the_settings_is_refused_with_what_to_write() -> None:
    with pytest.raises(ConfigError, match=r"'a:1' is not a mapping of settings; write bootstrap_servers='a:1'"):
        Example.parse("a:1")
    with pytest.raises(ConfigError, match=r"\['a:1'\] is not a mapping of settings, such as \{'bootstrap"):
        Example.parse(["a:1"])
