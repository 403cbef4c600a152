"""Tests names derived from distinguished names, by the examples of KIP-371 and by Java's `replaceAll`."""

from __future__ import annotations

import time

import pytest

from klamm.errors import ConfigError
from klamm.security.principal_rules import PrincipalRules

KIP_371 = (
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    r" RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L, DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        (KIP_371, "CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "serviceuser"),
        (KIP_371, "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "adminuser@admin"),
        (KIP_371, "OU=X,cn=Big.One,O=Y", "big.one"),
        (KIP_371, "OU=JavaEE,O=Unknown", "OU=JavaEE,O=Unknown"),
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("RULE:CN=(.*)/$1/", "O=a", None),
        ("", "O=a", None),
        (" , DEFAULT ,", "O=a", "O=a"),
        ("RULE:CN=a/b/U", "CN=a", "B"),
        ("RULE:CN=a/b/", "CN=a,O=c", None),  # the whole name has to match
        (r"RULE:CN=(.*)\/(.*)/$2\/$1/", "CN=a/b", "b/a"),
        (r"RULE:CN=(.*)/\$1 $1 $0/", "CN=a", "$1 a CN=a"),
        ("RULE:CN=(.*)/$12/", "CN=a", "a2"),
        ("RULE:CN=(.*)/$2-$1/", "CN=a", "$2-a"),
        ("RULE:CN=(a)|(b)/<$1$2>/", "CN=a", "<a>"),
        ("RULE:.*/x/", "abc", "xx"),  # as in Java: once for the whole text and once for the empty rest
        ("RULE:CN=(.*?)/$1/", "CN=a", "a"),  # "CN=" alone is replaced, because replaceAll finds it
    ],
)
def test_the_first_rule_that_matches_makes_the_name(rules: str, name: str, expected: str | None) -> None:
    assert PrincipalRules.parse(rules).name(name) == expected


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ("default", "'default' is not valid, expected RULE:pattern/replacement/[LU] or DEFAULT"),
        ("DEFAULT, RULE:a/b", "'RULE:a/b' is not valid"),
        ("RULE:a/b/X", "'RULE:a/b/X' is not valid"),
        ("RULE:a/b/LU", "'RULE:a/b/LU' is not valid"),
        ("RULE:(/b/", "'(' is not a regular expression of RE2's: missing )"),
        ("RULE:(?=a)a/b/", "'(?=a)a' is not a regular expression of RE2's"),
        (r"RULE:(a)\1/b/", "is not a regular expression of RE2's"),
    ],
)
def test_an_invalid_mapping_rule_is_refused(rules: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        PrincipalRules.parse(rules)
    assert told in str(refused.value)
    assert str(refused.value).startswith("ssl.principal.mapping.rules: ")


def test_a_hostile_name_is_matched_without_backtracking() -> None:
    rules = PrincipalRules.parse("RULE:CN=(a*)*(a*)*(a*)*b/$1/,DEFAULT")
    name = "CN=" + "a" * 2_000
    started = time.process_time()
    assert rules.name(name) == name
    assert time.process_time() - started < 1  # a backtracking engine would never finish
