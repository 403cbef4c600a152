"""Tests the records that `klamm perf` sends."""

from __future__ import annotations

import random
import zlib

import pytest

from klamm_cli.perf.sample import BYTES_MAX, RECORDS_MAX, Sample, SampleRecord, made_sample, taken_sample


def test_a_records_size_is_that_of_key_value_and_headers():
    assert SampleRecord(b"key", b"value", (("h", b"12"), ("none", None))).size_bytes == 3 + 5 + 1 + 2 + 4
    assert SampleRecord(None, None).size_bytes == 0


def test_the_bytes_of_a_count_are_those_of_the_records_in_turn():
    sample = Sample([SampleRecord(b"k", b""), SampleRecord(None, b"12345"), SampleRecord(None, None)])
    assert [sample.size_bytes(count) for count in range(8)] == [0, 1, 6, 6, 7, 12, 12, 13]
    assert (sample.mean_bytes, sample.total_bytes) == (2.0, 6)


@pytest.mark.parametrize("size_bytes", [1, 100, 1_000_000])
def test_made_values_have_the_size_and_compress_like_text(size_bytes):
    sample = made_sample(size_bytes, random.Random(1))
    assert {len(record.value or b"") for record in sample.records} == {size_bytes}
    assert {record.key for record in sample.records} == {None}
    assert sample.total_bytes <= BYTES_MAX
    whole = b"".join(record.value or b"" for record in sample.records)[:1_000_000]
    assert 0.5 < len(zlib.compress(whole)) / len(whole) < 0.75


def test_a_made_sample_is_larger_than_a_usual_batch():
    assert made_sample(100, random.Random(1)).total_bytes > 1_000_000


def test_the_same_seed_makes_the_same_sample():
    assert made_sample(10, random.Random(1)).records == made_sample(10, random.Random(1)).records


def test_a_taken_sample_is_bounded_in_records_and_bytes():
    small = [SampleRecord(None, b"x")] * (RECORDS_MAX + 1)
    assert taken_sample(small) == small[:RECORDS_MAX]
    large = SampleRecord(None, bytes(BYTES_MAX // 2))
    assert taken_sample([large] * 5) == [large] * 2
    assert taken_sample([]) == []


def test_one_record_that_is_larger_than_the_bound_is_taken():
    larger = SampleRecord(None, bytes(BYTES_MAX + 1))
    assert taken_sample([larger, larger]) == [larger]
