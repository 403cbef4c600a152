"""Tests how far a stream is behind, from the progress of Spark."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.streaming.listener import SourceProgress

from klamm.model import TopicPartition
from pyspark_klamm import offsets_behind_latest, source_metrics


def progress(end: object, latest: object) -> SourceProgress:
    texts = {name: each if isinstance(each, str) else json.dumps(each) for name, each in (("e", end), ("l", latest))}
    return SourceProgress("a source", "{}", texts["e"], texts["l"], 1, 1.0, 1.0, {})


def position(*offsets: int) -> dict[str, object]:
    return {"offsets": {"t": {str(partition): offset for partition, offset in enumerate(offsets)}}, "topic_ids": {}}


def test_offsets_behind_the_latest_count_by_partition():
    source = progress(position(5, 7), position(9, 7, 3))
    assert offsets_behind_latest(source) == {
        TopicPartition("t", 0): 4,
        TopicPartition("t", 1): 0,
        TopicPartition("t", 2): 3,  # a new partition
    }


def test_the_metrics_have_the_names_and_the_form_of_sparks_kafka_source():
    assert source_metrics(progress(position(5, 7), position(9, 7))) == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "4",
        "avgOffsetsBehindLatest": "2.0",
    }
    assert source_metrics(progress(position(), position())) == {}


@pytest.mark.parametrize("other", ["null", "5", '{"t": {"0": 5}}', "no json"])
def test_the_progress_of_another_source_is_refused(other):
    with pytest.raises(ValueError, match="the source a source is not of format"):
        source_metrics(progress(other, other))
