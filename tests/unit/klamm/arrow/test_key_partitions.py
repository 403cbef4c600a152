"""Tests the partitions of many keys against those of each key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.arrow.key_partitions import place_by_key
from klamm.core import core
from klamm.partitioner import key_partition

needs_core = pytest.mark.skipif(core is None, reason="klamm was built without a C compiler, or KLAMM_CORE=pure")
VARIANTS = [pytest.param(None, id="pure"), pytest.param(core, id="compiled", marks=needs_core)]


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | st.binary(max_size=9)), st.binary(max_size=80), st.integers(1, 1_000), st.integers(0, 3))
def test_every_key_gets_the_partition_that_kafkas_clients_choose(variant, keys, common, partition_count, skipped):
    keys = [*keys, *(bytes([number]) + common for number in range(40))]
    array = pa.array(keys, pa.binary()).slice(skipped)
    partitions = np.full(len(array), -1, np.int64)
    partitions[0] = 7
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("klamm.arrow.key_partitions.core", variant)
        place_by_key(partitions, array, partition_count)
    assert partitions.tolist() == [
        7 if row == 0 else -1 if key is None else key_partition(key, partition_count)
        for row, key in enumerate(keys[skipped:])
    ]
