"""Tests names of ledgers and their parts. All names of a ledger must belong to one shard."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.ledger_ids import LedgerId, is_misnamed, ledger_of, ledger_problem
from klamm.model import coordinator_shard, java_string_hash

NAMES = st.text("abcXYZ019._:-", min_size=1, max_size=249)
NUMBERS = st.integers(0, 2**31 - 1)


@given(NAMES, NAMES, NUMBERS, NUMBERS, st.integers(1, 60))
def test_all_transactional_ids_of_a_ledger_belong_to_its_shard(sink, query_id, partition, attempt, shard_count):
    ledger = LedgerId(sink, query_id)
    part = ledger.part(partition, attempt)
    assert ledger_problem(ledger) is None
    assert ledger_of(ledger.key) == ledger_of(part) == ledger
    assert coordinator_shard(part, shard_count) == coordinator_shard(ledger.key, shard_count)
    assert not is_misnamed(part)


@given(st.text(max_size=40), st.integers(1, 60))
def test_other_transactional_ids_belong_to_the_same_shard_as_in_kafka(key, shard_count):
    if ledger_of(key) is None:
        magnitude = abs(java_string_hash(key))
        assert coordinator_shard(key, shard_count) == magnitude % shard_count


@pytest.mark.parametrize(
    "key", ["orders", "__sink/a", "__sink/a/b/c/0", "__sink/a/b/1", "__sink/a b/c/1/0", "sink/a/b/1/0"]
)
def test_an_id_that_does_not_follow_the_ledger_form_names_no_ledger(key):
    assert ledger_of(key) is None
    assert is_misnamed(key) == key.startswith("__sink/")


def test_the_key_of_a_ledger_is_refused_as_a_transactional_id():
    assert is_misnamed(LedgerId("a", "b").key)


@pytest.mark.parametrize(
    "ledger", [LedgerId("", "q"), LedgerId("s", "a/b"), LedgerId("s" * 250, "q"), LedgerId("ü", "q")]
)
def test_an_invalid_ledger_name_is_refused(ledger):
    assert "expected" in str(ledger_problem(ledger))
