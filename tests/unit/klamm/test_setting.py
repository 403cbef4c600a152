"""Tests the definition of a setting: its name, its types, and the words of its refusals."""

from __future__ import annotations

from dataclasses import dataclass, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.errors import ConfigError
from klamm.secret import Secret
from klamm.setting import (
    REQUIRED,
    ConfigType,
    UpdateMode,
    Validator,
    again,
    at_least,
    between,
    boolean,
    custom,
    definitions,
    double,
    integer,
    list_matching,
    list_of,
    long,
    one_of,
    parse,
    render,
    secret,
    text,
    text_list,
    unknown,
)


def _even(value: object) -> int:
    if value in (2, "2"):
        return 2
    raise ValueError("an even prime")


@dataclass(frozen=True, kw_only=True)
class Base:
    node_id: int = integer(REQUIRED, at_least=0, doc="The id of this server.")
    is_open: bool = boolean(True, name="open", doc="Whether anybody may come in.")
    size_bytes: int = long(5, doc="How large.", update_mode=UpdateMode.CLUSTER_WIDE, takes_effect="from the next on")


@dataclass(frozen=True, kw_only=True)
class Example(Base):
    size_bytes: int = again(Base, "size.bytes", default=7)
    max_rate: float = double(0.5, valid=between(0, 1), doc="How fast.")
    rack: str | None = text(None, doc="Where.")
    secret: str = text("none", valid=one_of("none", "some"), sensitive=True, doc="Nobody is told.")
    topics: tuple[str, ...] = text_list(("a",), doc="Which.")
    policy: tuple[str, ...] = text_list((), valid=list_of("delete", "compact"), doc="What happens.")
    ids: tuple[str, ...] = text_list((), valid=list_matching("[0-9]+", "a list of numbers"), doc="Whose.")
    prime: int = custom(2, _even, shown="two", doc="The only one.")
    places: frozenset[str] = frozenset()
    """A field that is no setting."""


def test_a_setting_is_declared_once_and_named_after_its_field() -> None:
    known = definitions(Example)

    assert {name: setting.field for name, setting in known.items()} == {
        "node.id": "node_id",
        "open": "is_open",
        "size.bytes": "size_bytes",
        "max.rate": "max_rate",
        "rack": "rack",
        "secret": "secret",
        "topics": "topics",
        "policy": "policy",
        "ids": "ids",
        "prime": "prime",
    }
    assert len(fields(Example)) == len(known) + 1
    assert (known["size.bytes"].type, known["size.bytes"].default) == (ConfigType.LONG, 7)
    assert known["size.bytes"].takes_effect == definitions(Base)["size.bytes"].takes_effect == "from the next on"
    assert [setting.default_text() for setting in known.values()] == [
        *("", "true", "7", "0.5", "", "none", "a", "", "", "two"),
    ]


def test_text_and_typed_values_mean_the_same() -> None:
    typed = {"node.id": 3, "open": False, "max.rate": 1, "topics": ["b ", "c"], "prime": 2, "rack": None}
    as_text = {"node.id": " +3 ", "open": "False", "max.rate": "1", "topics": " b, c", "prime": "2"}

    assert Example(**parse(Example, typed)) == Example(**parse(Example, as_text))
    assert parse(Example, {"node.id": 0, "rack": " r "})["rack"] == " r ", "text stays as it is, as in Kafka"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("node.id", "one", "a whole number of 32 bits"),
        ("node.id", 2**31, "a whole number of 32 bits"),
        ("node.id", True, "a whole number of 32 bits"),
        ("node.id", "1_000", "a whole number of 32 bits"),
        ("node.id", None, "a whole number of 32 bits"),
        ("node.id", "-1", "at least 0"),
        ("size.bytes", 2**63, "a whole number of 64 bits"),
        ("open", 1, "true or false"),
        ("max.rate", "nan", "a number"),
        ("max.rate", True, "a number"),
        ("max.rate", 2, "0 to 1"),
        ("rack", 7, "text"),
        ("topics", "a,,b", "items separated by commas"),
        ("topics", [""], "items separated by commas, or a list of them"),
        ("policy", "burn", "a list of delete, compact, none of them twice"),
        ("policy", ["delete", "delete"], "a list of delete, compact, none of them twice"),
        ("ids", "1,b", "a list of numbers"),
        ("prime", 3, "an even prime"),
    ],
)
def test_a_refusal_names_setting_value_and_expectation(name: str, value: object, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(Example, {"node.id": 1, name: value})
    assert str(caught.value) == f"{name}: {value!r} is not valid, expected {expected}"


def test_the_refusal_of_a_secret_setting_does_not_show_its_value() -> None:
    with pytest.raises(ConfigError, match=r"^secret: the value given is not valid, expected one of none, some$"):
        parse(Example, {"node.id": 1, "secret": "hunter2"})


def test_a_secret_setting_has_the_type_password_and_is_never_rendered() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Account:
        password: Secret | None = secret(None, doc="Nobody is told.")

    setting = definitions(Account)["password"]
    assert (setting.type, setting.sensitive) == (ConfigType.PASSWORD, True)
    account = Account(**parse(Account, {"password": "hunter2"}))
    assert account.password is not None
    assert account.password.reveal() == "hunter2"
    assert setting.parse(account.password) == account.password
    assert render(account.password) == "[hidden]"
    assert "hunter2" not in repr(account)
    with pytest.raises(ConfigError, match=r"^password: the value given is not valid, expected text$"):
        setting.parse(["hunter2"])


def test_unknown_and_missing_settings_are_named() -> None:
    with pytest.raises(ConfigError, match=r"^unknown configuration size\.byte; did you mean size\.bytes\?$"):
        parse(Example, {"node.id": 1, "size.byte": 1})
    with pytest.raises(ConfigError, match=r"^node\.id is not set: The id of this server\.$"):
        parse(Example, {})
    assert unknown("xyzzy", definitions(Example)) == "unknown configuration xyzzy"


def test_validators_describe_the_accepted_values() -> None:
    validators = (at_least(1), between(1, 3), one_of("a", "b"), list_of("a"), Validator("a prime", lambda _: True))

    assert [validator.expected for validator in validators] == [
        *("at least 1", "1 to 3", "one of a, b", "a list of a, none of them twice", "a prime"),
    ]


@given(
    st.sampled_from(["node.id", "size.bytes", "open", "max.rate", "topics"]),
    st.text(max_size=20) | st.integers().map(str) | st.floats().map(str),
)
def test_text_is_refused_or_survives_a_round_trip(name: str, value: str) -> None:
    setting = definitions(Example)[name]
    try:
        parsed = setting.parse(value)
    except ConfigError:
        return
    assert setting.parse(render(parsed)) == parsed
