"""What filters leave to read: never less than what passes them."""

from __future__ import annotations

import datetime

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from klamm.model import TopicPartition
from pyspark_klamm.offsets import OffsetRange
from pyspark_klamm.pushed_filters import PushedFilters

MEANINGS = {
    EqualTo: lambda value, wanted: value == wanted,
    GreaterThan: lambda value, bound: value > bound,
    GreaterThanOrEqual: lambda value, bound: value >= bound,
    LessThan: lambda value, bound: value < bound,
    LessThanOrEqual: lambda value, bound: value <= bound,
    In: lambda value, values: value in values,
    StringStartsWith: lambda value, part: value.startswith(part),
    StringEndsWith: lambda value, part: value.endswith(part),
    StringContains: lambda value, part: part in value,
}
TEXTUAL = (StringStartsWith, StringEndsWith, StringContains)
ORDERED = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
TOPICS = ("flights", "lights", "weather")
RANGES = [
    OffsetRange(tp=TopicPartition(topic, partition), start_offset=2, end_offset=9)
    for topic in TOPICS
    for partition in range(3)
]


def filters_of(column: str, values: st.SearchStrategy, types: tuple) -> st.SearchStrategy:
    one = st.builds(lambda kind, value: kind((column,), value), st.sampled_from(types), values)
    return st.one_of(one, st.lists(values, min_size=1, max_size=3).map(lambda several: In((column,), tuple(several))))


pushed = st.lists(
    st.one_of(
        filters_of("partition", st.integers(0, 3), ORDERED),
        filters_of("offset", st.integers(0, 10), ORDERED),
        filters_of("topic", st.sampled_from(TOPICS), ORDERED),
        filters_of(
            "topic", st.sampled_from(("fl", "lights", "er")), (StringStartsWith, StringEndsWith, StringContains)
        ),
    ),
    max_size=4,
)


def passes(filters: list[Filter], **row: object) -> bool:
    return all(MEANINGS[type(each)](row[each.attribute[0]], each.value) for each in filters)


@given(pushed)
def test_what_is_left_is_what_passes(filters):
    left = PushedFilters.of([*filters, IsNotNull(("topic",)), Not(EqualTo(("offset",), 5))]).narrowed(RANGES)
    kept = {(each.tp, offset) for each in left for offset in range(each.start_offset, each.end_offset)}
    everything = {(each.tp, offset) for each in RANGES for offset in range(each.start_offset, each.end_offset)}
    passing = {
        (tp, offset)
        for tp, offset in everything
        if passes(filters, topic=tp.topic, partition=tp.partition, offset=offset)
    }
    assert passing <= kept <= everything
    if not any(isinstance(each, In) and each.attribute == ("offset",) for each in filters):
        assert kept == passing


def test_of_times_the_latest_lower_bound_counts():
    early = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    late = early + datetime.timedelta(microseconds=1_500)
    found = PushedFilters.of(
        [GreaterThan(("timestamp",), early), GreaterThanOrEqual(("timestamp",), late), LessThan(("timestamp",), early)]
    )
    assert found.timestamp_ms_min == int(early.timestamp() * 1000) + 1
    assert PushedFilters.of([LessThan(("timestamp",), early)]).timestamp_ms_min is None
