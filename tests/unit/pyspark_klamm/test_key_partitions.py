"""Tests the partitions of many keys against those of each key."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.partitioner import key_partition
from pyspark_klamm.key_partitions import key_partitions


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=9)), st.binary(max_size=80), st.integers(1, 1_000), st.integers(0, 3))
def test_every_key_gets_the_partition_that_kafkas_clients_choose(keys, common, partition_count, skipped):
    keys = [*keys, *(bytes([number]) + common for number in range(40))]
    array = pa.array(keys, pa.binary()).slice(skipped)
    assert key_partitions(array, partition_count).tolist() == [
        key_partition(key, partition_count) for key in keys[skipped:]
    ]
