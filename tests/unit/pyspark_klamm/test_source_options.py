"""Tests the options of the Spark source: the accepted and the refused ones, by name."""

from __future__ import annotations

import json

import pytest

from klamm.errors import ConfigError
from klamm.model import TopicPartition
from pyspark_klamm.offset_spec import EARLIEST, LATEST
from pyspark_klamm.source_options import source_options, warn_of_useless

READ = {"kafka.bootstrap.servers": "localhost:9094", "subscribe": "flights, weather"}
CLUSTER = {"kafka.bootstrap.servers": "localhost:9094"}
TP = TopicPartition("flights", 0)


def test_source_option_defaults_are_those_of_sparks_kafka_source():
    stream = source_options(READ, streaming=True)
    assert stream.subscription.topics == ("flights", "weather")
    assert stream.start.at == LATEST
    assert stream.fail_on_data_loss
    assert not stream.include_headers
    assert stream.rate.max_offsets is None
    assert stream.rate.min_offsets is None
    assert stream.rate.max_delay_ms == 15 * 60_000
    assert stream.fetch_offset_attempts == 3
    assert stream.poll_timeout_ms == 120_000
    batch = source_options(READ, streaming=False)
    assert batch.start.at == EARLIEST
    assert batch.end.at == LATEST


def test_offsets_by_partition():
    options = source_options({**READ, "startingOffsets": '{"flights": {"0": 23, "1": -2}}'}, streaming=True)
    assert options.start.at == {TP: 23, TopicPartition("flights", 1): EARLIEST}


@pytest.mark.parametrize(
    ("names", "counts"),
    [
        (("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"), "startingTimestamp"),
        (("startingOffsetsByTimestamp", "startingOffsets"), "startingOffsetsByTimestamp"),
        (("startingOffsets",), "startingOffsets"),
    ],
)
def test_starting_timestamp_overrides_partition_timestamps_and_both_override_offsets(names, counts):
    values = {
        "startingTimestamp": "5",
        "startingOffsetsByTimestamp": json.dumps({"flights": {"0": 6}}),
        "startingOffsets": "earliest",
    }
    spec = source_options({**READ, **{name: values[name] for name in names}}, streaming=True).start
    assert spec.option == counts
    assert spec.by_time == (counts != "startingOffsets")
    ending = {name.replace("starting", "ending"): values[name] for name in names if name != "startingOffsets"}
    end = source_options({**READ, **ending}, streaming=False).end
    assert end.option == (counts.replace("starting", "ending"))


def test_a_start_time_without_a_match_is_an_error_by_default_and_an_end_time_means_latest():
    given = {**READ, "startingTimestamp": "5", "endingTimestamp": "9"}
    options = source_options(given, streaming=False)
    assert (options.start.latest_if_none, options.end.latest_if_none) == (False, True)
    latest = source_options({**given, "startingOffsetsByTimestampStrategy": "LATEST"}, streaming=False)
    assert latest.start.latest_if_none


def test_kafka_options_configure_the_client():
    options = source_options({**READ, "kafka.client.rack": "a"}, streaming=True)
    assert options.client == {"bootstrap.servers": "localhost:9094", "client.rack": "a"}
    plain = source_options({"bootstrap.servers": "h:1", "subscribe": "t"}, streaming=True)
    assert plain.client == {"bootstrap.servers": "h:1"}


def test_a_group_option_only_names_the_group_that_gets_the_progress():
    options = source_options({**READ, "kafka.group.id": "g", "groupIdPrefix": "p"}, streaming=True)
    assert (options.client.get("group.id"), options.commit_group) == (None, None)
    options = source_options({**READ, "kafka.group.id": "g", "commitOffsetsToGroup": "g"}, streaming=True)
    assert options.commit_group == "g"


def test_the_limits_of_tasks_are_read_from_options():
    limits = source_options({**READ, "minPartitions": "3", "maxRecordsPerPartition": "100"}, streaming=True).tasks
    assert (limits.min_tasks, limits.max_records_per_task) == (3, 100)


def test_a_trigger_delay_is_read_like_sparks_times():
    given = {**READ, "minOffsetsPerTrigger": "10", "maxTriggerDelay": "2m"}
    assert source_options(given, streaming=True).rate.max_delay_ms == 120_000
    assert source_options({**given, "maxTriggerDelay": "250"}, streaming=True).rate.max_delay_ms == 250


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"subscribe": "flights"}, "kafka.bootstrap.servers"),
        (CLUSTER, "expected exactly one of the options assign, subscribe, subscribePattern; none was given"),
        ({**READ, "subscribePattern": "f.*"}, "subscribe and subscribePattern were given"),
        ({**CLUSTER, "subscribe": " , "}, "subscribe"),
        ({**READ, "subscribe": "flights, bad topic"}, "bad topic"),
        ({**READ, "startingoffsets": "soon"}, "startingOffsets='soon'"),
        ({**READ, "startingoffsets": '{"flights": {"0": -3}}'}, "-3"),
        ({**READ, "startingoffsets": '{"flights": 3}'}, "startingOffsets"),
        ({**READ, "startingoffsets": '["flights"]'}, "startingOffsets"),
        ({**READ, "startingtimestamp": "yesterday"}, "startingTimestamp='yesterday': expected milliseconds"),
        ({**READ, "startingoffsetsbytimestamp": '{"flights": {"0": -1}}'}, "-1 is not a time"),
        ({**READ, "startingtimestamp": str(2**63)}, "startingTimestamp='9223372036854775808': expected milliseconds"),
        (
            {**READ, "startingoffsetsbytimestamp": f'{{"flights": {{"0": {2**63}}}}}'},
            "9223372036854775808 is not a time",
        ),
        ({**READ, "startingoffsets": f'{{"flights": {{"0": {2**63}}}}}'}, "9223372036854775808 is not an offset"),
        ({**READ, "startingtimestamp": "1", "startingoffsets": "soon"}, "startingOffsets='soon'"),
        ({**READ, "startingoffsetsbytimestampstrategy": "guess"}, "expected error or latest"),
        ({**READ, "endingoffsets": "latest"}, "endingOffsets is only for batch"),
        ({**READ, "endingtimestamp": "1"}, "endingTimestamp is only for batch"),
        ({**READ, "maxoffsetspertrigger": "0"}, "maxOffsetsPerTrigger"),
        ({**READ, "maxoffsetspertrigger": "many"}, "many"),
        ({**READ, "minoffsetspertrigger": "9", "maxoffsetspertrigger": "5"}, "minOffsetsPerTrigger=9 is more than"),
        (
            {**READ, "minoffsetspertrigger": "9", "maxtriggerdelay": "soon"},
            "maxTriggerDelay: 'soon' is not valid",
        ),
        ({**READ, "minpartitions": "9", "maxtasks": "5"}, "minPartitions=9 is more than maxTasks=5"),
        ({**READ, "maxrecordsperpartition": "9", "maxtasks": "5"}, "set one of them"),
        ({**READ, "failondataloss": "perhaps"}, "perhaps"),
        ({**READ, "fetchoffset.numretries": "0"}, "fetchOffset.numRetries: '0'"),
        ({**READ, "commitoffsetstogroup": "a", "kafka.group.id": "b"}, "name different groups"),
        ({**READ, "kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset"),
        ({**READ, "kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit"),
        ({**READ, "startingofsets": "latest"}, "unknown option 'startingofsets'; did you mean startingOffsets?"),
        ({**READ, "isolationlevel": "x"}, "did you mean kafka.isolation.level?"),
        ({**READ, "group.id": "x"}, "did you mean kafka.group.id?"),
    ],
)
def test_a_bad_source_option_is_refused_by_name(given, named):
    with pytest.raises(ConfigError, match=named):
        source_options(given, streaming=True)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"endingoffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({"endingoffsets": '{"flights": {"0": -2}}'}, "endingOffsets cannot be earliest"),
        ({"startingoffsets": "latest"}, "startingOffsets cannot be latest"),
        ({"startingoffsets": '{"flights": {"0": -1}}'}, "startingOffsets cannot be latest"),
        (
            {"startingoffsets": '{"flights": {"0": 5}}', "endingoffsets": '{"flights": {"0": 4}}'},
            r"startingOffsets \(5\) is behind endingOffsets \(4\) for flights-0",
        ),
        (
            {"startingoffsets": '{"flights": {"0": 5}}', "endingoffsets": '{"flights": {"1": 9}}'},
            "must name the same partitions; only one of them names flights-0, flights-1",
        ),
    ],
)
def test_contradictory_offsets_of_a_batch_query_are_refused(given, named):
    with pytest.raises(ConfigError, match=named):
        source_options({**READ, **given}, streaming=False)


def test_limits_of_streams_have_no_effect_in_a_batch_query(caplog):
    given = {**READ, "maxOffsetsPerTrigger": "5", "maxTriggerDelay": "1s"}
    source_options(given, streaming=False)
    assert caplog.text == ""
    warn_of_useless(given, streaming=False)
    assert "maxOffsetsPerTrigger has no effect in a batch query" in caplog.text
    assert "maxTriggerDelay has no effect without minOffsetsPerTrigger" in caplog.text


def test_an_unknown_option_without_a_near_one_is_refused_with_all_options():
    with pytest.raises(
        ConfigError, match=r"unknown option 'colour'; the options are assign, clientConfigFile, .*kafka"
    ):
        source_options({**READ, "colour": "red"}, streaming=True)
