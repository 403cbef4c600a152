"""Tests translated offsets against the records themselves."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from klamm_pipelines import offset_syncs
from klamm_pipelines.offset_syncs import (
    MirroredRun,
    MirroredRunBuilder,
    decode,
    encode_key,
    encode_value,
    slot_of,
    translate,
)

gaps = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=60)


def mirrored(steps):
    """Returns source and target offset of records. Each step gives the distances from the record before."""
    source, target, records = 0, 0, []
    for source_step, target_step in steps:
        source, target = source + source_step, target + target_step
        records.append((source, target))
    return records


def runs_of(records):
    builder = MirroredRunBuilder()
    for record in records:
        builder.add(*record)
    return builder.runs


def test_records_with_consecutive_offsets_on_both_sides_are_one_run():
    assert runs_of([(5, 0), (6, 1), (7, 2), (9, 3), (10, 5)]) == (
        MirroredRun(5, 0, 3), MirroredRun(9, 3, 1), MirroredRun(10, 5, 1),
    )  # fmt: skip


@given(steps=gaps, offset=st.integers(0, 200))
def test_a_translated_offset_is_that_of_the_next_record_to_read(steps, offset):
    records = mirrored(steps)
    translated = translate(runs_of(records), offset)
    if offset < records[0][0]:
        assert translated is None
        return
    assert translated is not None
    left = [target for source, target in records if source >= offset]
    assert [target for _, target in records if target >= translated] == left


@given(steps=gaps, offset=st.integers(0, 200), known=st.sets(st.integers(0, 60)))
def test_with_fewer_known_runs_a_translated_offset_skips_no_record(steps, offset, known):
    records = mirrored(steps)
    runs = [run for index, run in enumerate(runs_of(records)) if index in known]
    translated = translate(runs, offset)
    for source, target in records:
        assert source < offset or translated is None or target >= translated


def test_the_runs_of_one_sync_are_bounded(monkeypatch):
    monkeypatch.setattr(offset_syncs, "RUNS_MAX", 8)
    records = mirrored([(2, 1)] * 100)
    runs = runs_of(records)
    assert len(runs) <= 8
    assert runs[0].source_offset == 2, "from the first"
    assert translate(runs, 200) == 100, "to the last"
    for offset in range(2, 202):
        translated = translate(runs, offset)
        assert translated is not None
        assert all(target >= translated for source, target in records if source >= offset)


def test_few_syncs_of_many_batches_are_kept_but_all_of_the_last_ones():
    kept: dict[str, int] = {}
    for batch_id in range(100_000):
        kept[slot_of(batch_id)] = batch_id
    assert len(kept) < 20 * offset_syncs.SLOTS
    assert set(range(99_900, 100_000)) <= set(kept.values())
    ages = sorted(100_000 - batch_id for batch_id in kept.values())
    assert all(older <= 2 * younger + 2 for younger, older in itertools.pairwise(ages)), "thinner with age"


def test_an_offset_sync_survives_a_round_trip():
    runs = [MirroredRun(5, 0, 3), MirroredRun(9, 3, 1)]
    assert decode(encode_key("orders", 2, 7), encode_value(runs)) == ("orders", 2, runs)
