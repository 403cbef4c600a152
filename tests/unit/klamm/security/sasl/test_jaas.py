from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.errors import ConfigError
from klamm.secret import Secret
from klamm.security.sasl.jaas import LoginModule, parse_jaas

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def options(text: str) -> dict[str, str]:
    return {name: value.reveal() for name, value in parse_jaas(Secret(text)).options.items()}


@pytest.mark.parametrize("module", LoginModule)
def test_each_known_login_module_is_parsed(module: LoginModule) -> None:
    login = parse_jaas(Secret(f'{module.value} required username="a" password="b";'))
    assert login.module is module
    assert {name: value.reveal() for name, value in login.options.items()} == {"username": "a", "password": "b"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("key=word", "word"),
        ("key = 'single'", "single"),
        ('key="a b;=c"', "a b;=c"),
        (r'key="a\"b\\c\n\101\7"', 'a"b\\c\nA\7'),
        (r'key="\477"', "'7"),
        ('key="//no comment"', "//no comment"),
        ("/* a comment\n */ key=word // another", "word"),
        ('key=""', ""),
        ('"key"="quoted name"', "quoted name"),
        ("key=a-b_c$d.e", "a-b_c$d.e"),
    ],
)
def test_values_are_read_as_in_java(text: str, value: str) -> None:
    assert options(f"{SCRAM} REQUIRED {text}\n;") == {"key": value}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no login module"),
        ("  // nothing", "no login module"),
        (SCRAM, "control flag"),
        (f"{SCRAM} hunter2 a=b;", "control flag"),
        (f"{SCRAM} required a=hunter2", "does not end"),
        (f"{SCRAM} required hunter2;", "no value"),
        (f"{SCRAM} required a=;", "no value"),
        (f"{SCRAM} required a=1hunter2;", "no value"),
        (f"{SCRAM} required a='hunter2;", "no value"),
        (f"{SCRAM} required a=-hunter2;", "no value"),
        (f"{SCRAM} required =hunter2;", "no option's name"),
        (f"{SCRAM} required a=b a=hunter2;", "twice"),
        (f"{SCRAM} required a=b; {SCRAM} required a=hunter2;", "after the first ';'"),
        ("com.sun.security.auth.module.JndiLoginModule required hunter2='ldap://evil';", "not known"),
        ("org.apache.kafka.common.security.scram.hunter2 required;", "not known"),
    ],
)
def test_jaas_errors_do_not_show_the_text(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=r"^sasl\.jaas\.config ") as refused:
        parse_jaas(Secret(text))
    assert problem in str(refused.value)
    assert "hunter2" not in str(refused.value)


@given(st.text() | st.text("orgaku.;=\"'\\/* \n1-").map(lambda text: f"{SCRAM} required {text};"))
def test_any_jaas_text_is_parsed_or_raises_a_config_error(text: str) -> None:
    with contextlib.suppress(ConfigError):
        parse_jaas(Secret(text))
