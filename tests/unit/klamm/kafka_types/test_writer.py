"""Tests the written bytes against Kafka's description. `test_reader.py` reads the output of any writer."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import writers as kio
from kio.static.primitive import uvarint

from klamm.kafka_types.writer import STRING_BYTES_MAX, KafkaWriter


def test_classic_lengths_have_a_fixed_width() -> None:
    writer = KafkaWriter().string("ab").nullable_string(None).bytes_(b"c").null_array().array_size(2)
    assert writer.value() == b"\0\2ab" + b"\xff\xff" + b"\0\0\0\1c" + b"\xff\xff\xff\xff" + b"\0\0\0\2"
    assert KafkaWriter().tagged_fields([(1, b"x")]).value() == b""


def test_flexible_lengths_are_varints_of_length_plus_one() -> None:
    writer = KafkaWriter(flexible=True).string("ab").nullable_string(None).bytes_(b"c").null_array().array_size(2)
    assert writer.tagged_fields([(1, b"x")]).value() == b"\3ab" + b"\0" + b"\2c" + b"\0" + b"\3" + b"\1\1\1x"


@given(st.integers(0, 2**31 - 1))
def test_varints_are_those_of_kio(value: int) -> None:
    written = io.BytesIO()
    kio.write_unsigned_varint(written, uvarint(value))
    assert KafkaWriter().unsigned_varint(value).value() == written.getvalue()


def test_a_string_too_long_for_kafka_is_not_written() -> None:
    KafkaWriter(flexible=True).string("x" * STRING_BYTES_MAX)
    for flexible in (False, True):
        with pytest.raises(AssertionError):
            KafkaWriter(flexible=flexible).string("x" * (STRING_BYTES_MAX + 1))
