"""Tests records as JSON lines: `produce --json-lines` reads every output of `consume --json`, whatever the bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from klamm.consumer import ConsumerRecord
from klamm.errors import ConfigError
from klamm.records import TimestampType
from klamm_cli.text.record_json import format_json, parse_json
from klamm_cli.text.record_lines import RecordLine

CONTENTS = st.none() | st.binary() | st.text().map(str.encode)
HEADERS = st.lists(st.tuples(st.text(), CONTENTS)).map(tuple)


def record(key, value, headers, timestamp_ms=5):
    return ConsumerRecord("t", 3, 9, timestamp_ms, key, value, headers, TimestampType.CREATE_TIME, 0)


@given(key=CONTENTS, value=CONTENTS, headers=HEADERS, timestamp_ms=st.integers(0, 2**63 - 1))
@example(key=b"", value=None, headers=(("h", None), ("h", b""), ("", b"\xff")), timestamp_ms=0)
@example(key=b"\xff", value=b'{"base64": "aGk="}', headers=(("h", b"base64"),), timestamp_ms=0)
def test_any_bytes_come_back_as_they_were(key, value, headers, timestamp_ms):
    line = format_json(record(key, value, headers, timestamp_ms))
    assert line.index(b"\n") == len(line) - 1
    assert parse_json(line) == RecordLine(key=key, value=value, headers=headers, partition=3, timestamp_ms=timestamp_ms)


def test_only_bytes_that_are_not_utf8_become_base64():
    document = json.loads(format_json(record(b"k", b"\xff\x00", (("a", b"1"), ("b", b"\xfe")))))
    assert (document["key"], document["value_base64"]) == ("k", "/wA=")
    assert not {"value", "key_base64"} & document.keys()
    assert document["headers"] == [["a", "1"], ["b", "/g==", "base64"]]


def test_a_json_value_that_looks_like_base64_stays_json():
    line = parse_json(b'{"value": {"base64": "aGk="}, "headers": {"h": {"base64": "aGk="}}}')
    assert line.value == b'{"base64": "aGk="}'
    assert line.headers == (("h", b'{"base64": "aGk="}'),)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b'{"value": "a", "value_base64": "YQ=="}', "value and value_base64 exclude each other"),
        (b'{"value_base64": "a"}', 'value_base64: expected a string of base64, not "a"'),
        (b'{"value_base64": "YQ==!"}', "expected a string of base64"),
        (b'{"key_base64": null}', "key_base64: expected a string of base64, not null"),
        (b'{"headers": [["h", "YQ==", "base32"]]}', "headers: expected"),
        (b'{"headers": [["h", 5, "base64"]]}', "header h: expected a string of base64, not 5"),
        (b'{"headers": [[]]}', "headers: expected"),
        (b'{"value": "\\ud800"}', "value: half a surrogate pair"),
        (b'{"value": ["\\ud800"]}', "value: half a surrogate pair"),
        (b'{"headers": [["\\ud800", "a"]]}', "headers: half a surrogate pair"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff", "not JSON"),
    ],
)
def test_a_json_line_that_is_not_a_record_is_refused(line, complaint):
    with pytest.raises(ConfigError) as refused:
        parse_json(line)
    assert complaint in str(refused.value)
