"""Tests the check of options when Spark makes the data source, before a query begins."""

from __future__ import annotations

import pytest

from klamm.errors import ConfigError
from pyspark_klamm.early_check import check_source

CLUSTER = {"kafka.bootstrap.servers": "h:1"}
READ = {**CLUSTER, "subscribe": "flights"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({**READ, "startingofsets": "latest"}, "did you mean startingOffsets?"),
        ({**READ, "startingoffsets": "soon"}, "startingOffsets='soon'"),
        ({**READ, "kafka.isolation.level": "x"}, "isolation.level"),
        ({**READ, "kafka.isolation.levels": "x"}, "did you mean isolation.level?"),
        (CLUSTER, "none was given"),
        ({**CLUSTER, "startingOffsets": "latest"}, "expected exactly one of the options assign, subscribe"),
        ({**READ, "endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
    ],
)
def test_options_that_no_query_can_have_are_refused(given, named):
    with pytest.raises(ConfigError, match=named):
        check_source(given)


@pytest.mark.parametrize(
    "given",
    [
        {**READ, "startingOffsets": "latest", "maxOffsetsPerTrigger": "5"},
        {**READ, "startingOffsets": "earliest", "endingOffsets": "latest"},
        {**READ, "endingTimestamp": "5", "maxOffsetsPerTrigger": "5"},
    ],
)
def test_options_of_a_stream_or_of_a_batch_query_are_accepted(given):
    check_source(given)


def test_settings_without_effect_are_not_reported_at_the_check(caplog):
    check_source({**READ, "kafka.session.timeout.ms": "1", "maxTriggerDelay": "1s"})
    assert caplog.text == ""
