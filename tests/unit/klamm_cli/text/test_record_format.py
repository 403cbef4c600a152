"""Tests how `klamm consume` prints a record: kcat's formats, separators with escapes, null and empty."""

from __future__ import annotations

import pytest

from klamm.consumer import ConsumerRecord
from klamm.errors import ConfigError
from klamm.records import TimestampType
from klamm_cli.text.escapes import unescape
from klamm_cli.text.record_format import key_and_value_formatter, parse_format, value_formatter
from klamm_cli.text.record_lines import RecordLine, line_parser


def record(key=b"k", value=b"v", headers=()):
    return ConsumerRecord("orders", 2, 7, 1_500, key, value, headers, TimestampType.CREATE_TIME, 0)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (r"Topic %t [%p] at offset %o: key %k: %s\n", b"Topic orders [2] at offset 7: key k: v\n"),
        ("%T %K %S", b"1500 1 1"),
        ("%R", b"\0\0\0\1"),
        ("%h", b"a=1,b=NULL,c="),
        ("100%%%s", b"100%v"),
        (r"%s\t\x1f\u00e9%%", b"v\t\x1f\xc3\xa9%"),
        (r"\x25s", b"%s"),
        ("", b""),
    ],
)
def test_a_record_format_prints_what_kcat_prints(text, printed):
    headers = (("a", b"1"), ("b", None), ("c", b""))
    assert parse_format(text, b"")(record(headers=headers)) == printed


def test_a_format_tells_null_from_empty_as_kcat_does():
    formatter = parse_format("%k,%K,%s,%S,%R;", b"")
    assert formatter(record(None, None)) == b",-1,,-1,\xff\xff\xff\xff;"
    assert formatter(record(b"", b"")) == b",0,,0,\0\0\0\0;"
    assert parse_format("%k,%s", b"NULL")(record(None, None)) == b"NULL,NULL"


def test_bytes_are_printed_as_they_are():
    assert parse_format("%k%s", b"")(record(b"%s\xff", b"%\0")) == b"%s\xff%\0"


@pytest.mark.parametrize("text", ["%q", "%", "%s%", "%\n"])
def test_an_unknown_format_token_is_refused_with_the_known_ones(text):
    with pytest.raises(ConfigError, match="is not a token; expected %t, %p, %o"):
        parse_format(text, b"")


def test_an_empty_key_is_printed_differently_from_a_null_key():
    formatter = key_and_value_formatter(b"\t", b"null")
    assert formatter(record(b"", b"")) == b"\t\n"
    assert formatter(record(None, None)) == b"null\tnull\n"
    assert value_formatter(b"null")(record(value=None)) == b"null\n"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("::", b"::"),
        (r"\t\n\r\0\\", b"\t\n\r\0\\"),
        (r"\x1f\xff", b"\x1f\xff"),
        (r"\u00e9\U0001f600", "é😀".encode()),
        (r"\\t", rb"\t"),
        ("é", "é".encode()),
        ("\udcff", b"\xff"),
        ("", b""),
    ],
)
def test_escapes_in_an_option_become_bytes(text, meant):
    assert unescape(text, "--key-separator") == meant


@pytest.mark.parametrize("text", [r"\q", "\\", r"\x1", r"\u12", r"\ud800", r"\U00110000", r"a\é"])
def test_an_invalid_escape_is_refused(text):
    with pytest.raises(ConfigError, match=r"--key-separator: \\.* is not an? (escape|character)"):
        unescape(text, "--key-separator")


def test_the_null_marker_in_a_line_means_null():
    parse = line_parser(b"\t", b"null")
    assert parse(b"k\tv\r\n") == RecordLine(key=b"k", value=b"v")
    assert parse(b"null\tnull\n") == RecordLine(key=None, value=None)
    assert parse(b"\t\n") == RecordLine(key=b"", value=b"")
    assert line_parser(None, b"")(b"\n") == RecordLine(value=None)
    assert line_parser(None, None)(b"null\n") == RecordLine(value=b"null")


def test_a_line_without_the_separator_is_refused():
    with pytest.raises(ConfigError, match="there is no '::' between key and value"):
        line_parser(b"::", None)(b"a:b\n")
