"""Tests the text of names against Java's. `tests/clients/test_distinguished_names.py` asks Java itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.security.distinguished_name import java_text, subject_text
from tests.support.der import UTF8, attribute, certificate, name, rdn

CN, ORG, EMAIL, SERIAL, DC = "2.5.4.3", "2.5.4.10", "1.2.840.113549.1.9.1", "2.5.4.5", "0.9.2342.19200300.100.1.25"
PRINTABLE, IA5, INTEGER = 0x13, 0x16, 0x02


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], ""),
        ([rdn(attribute(ORG, UTF8, "Acme"), attribute(CN, UTF8, "x"))], "O=Acme+CN=x"),
        ([rdn(attribute(DC, IA5, "org")), rdn(attribute(CN, UTF8, "kafka"))], "CN=kafka,DC=org"),
        ([rdn(attribute(EMAIL, IA5, "a@b"))], "1.2.840.113549.1.9.1=#1603614062"),
        ([rdn(attribute(SERIAL, PRINTABLE, "7"))], "2.5.4.5=#130137"),
        ([rdn(attribute(CN, UTF8, 'a,b+c"d\\e<f>g;h#i=j'))], r"CN=a\,b\+c\"d\\e\<f\>g\;h\#i\=j"),
        ([rdn(attribute(CN, UTF8, "  a b "))], r"CN=\ \ a b\ "),
        ([rdn(attribute(CN, UTF8, "  "))], r"CN=\ \ "),
        ([rdn(attribute(CN, UTF8, "a\0b"))], r"CN=a\00b"),
        ([rdn(attribute(CN, UTF8, "Zoë\n"))], "CN=Zoë\n"),
        ([rdn(attribute(CN, INTEGER, "\1"))], "CN=#020101"),
        ([rdn(attribute(CN, UTF8, "x" * 300))], "CN=" + "x" * 300),
    ],
)
def test_distinguished_names_have_javas_text(parts: list[bytes], expected: str) -> None:
    assert java_text(name(*parts)) == expected


@pytest.mark.parametrize("version", [1, 3])
def test_the_subject_is_read_from_certificates_of_version_1_and_3(version: int) -> None:
    encoded = certificate(name(rdn(attribute(CN, UTF8, "who"))), version=version)
    assert subject_text(encoded) == "CN=who"


@given(st.binary(max_size=40))
def test_random_bytes_are_read_or_raise_a_value_error(data: bytes) -> None:
    for read in (java_text, subject_text):
        try:
            read(data)
        except ValueError:
            continue


@given(st.integers(0, 60))
def test_a_truncated_name_raises_a_value_error(length: int) -> None:
    whole = name(rdn(attribute(CN, UTF8, "a" * 60)))
    with pytest.raises(ValueError, match="DER"):
        java_text(whole[:length])
