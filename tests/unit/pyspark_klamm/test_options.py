"""Options of the Spark source and sink: what is taken and what is refused, by name."""

from __future__ import annotations

import pytest

from klamm.errors import ConfigError
from klamm.model import TopicPartition
from pyspark_klamm.options import EARLIEST, LATEST, sink_options, source_options

EXACTLY_ONCE = {"kafka.bootstrap.servers": "h:1", "deliveryguarantee": "exactly-once"}
READ = {"kafka.bootstrap.servers": "localhost:9094", "subscribe": "flights, weather"}


def test_defaults_are_those_of_spark_s_kafka_source():
    stream = source_options(READ, streaming=True)
    assert stream.topics == ("flights", "weather")
    assert stream.starting_offsets.default == LATEST
    assert stream.fail_on_data_loss
    assert not stream.include_headers
    assert stream.max_offsets_per_trigger is None
    batch = source_options(READ, streaming=False)
    assert batch.starting_offsets.default == EARLIEST
    assert batch.ending_offsets.default == LATEST


def test_offsets_by_partition():
    options = source_options({**READ, "startingOffsets": '{"flights": {"0": 23, "1": -2}}'}, streaming=True)
    assert options.starting_offsets.partitions == {
        TopicPartition("flights", 0): 23,
        TopicPartition("flights", 1): EARLIEST,
    }


def test_kafka_options_configure_the_client():
    options = source_options({**READ, "kafka.client.rack": "a"}, streaming=True)
    assert options.client == {"bootstrap.servers": "localhost:9094", "client.rack": "a"}
    plain = source_options({"bootstrap.servers": "h:1", "subscribe": "t"}, streaming=True)
    assert plain.client == {"bootstrap.servers": "h:1"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"subscribe": "flights"}, "kafka.bootstrap.servers"),
        ({"kafka.bootstrap.servers": "h:1"}, "subscribe"),
        ({**READ, "subscribe": "flights, bad topic"}, "bad topic"),
        ({**READ, "startingoffsets": "soon"}, "soon"),
        ({**READ, "startingoffsets": '{"flights": {"0": -3}}'}, "-3"),
        ({**READ, "startingoffsets": '{"flights": 3}'}, "startingoffsets"),
        ({**READ, "startingoffsets": '["flights"]'}, "startingoffsets"),
        ({**READ, "endingoffsets": "latest"}, "endingOffsets"),
        ({**READ, "maxoffsetspertrigger": "0"}, "maxOffsetsPerTrigger"),
        ({**READ, "maxoffsetspertrigger": "many"}, "many"),
        ({**READ, "failondataloss": "perhaps"}, "perhaps"),
        ({**READ, "kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset"),
        ({**READ, "kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit"),
        ({**READ, "startingofsets": "latest"}, "startingofsets"),
        ({**READ, "kafka.group.id": "g"}, "kafka.group.id cannot be set: the source reads without a consumer group"),
        ({**READ, "groupidprefix": "g"}, "groupIdPrefix cannot be set: the source reads without a consumer group"),
    ],
)
def test_a_bad_source_option_is_refused_by_name(given, named):
    with pytest.raises(ConfigError, match=named):
        source_options(given, streaming=True)


def test_an_empty_batch_range_is_refused():
    with pytest.raises(ConfigError, match="endingOffsets"):
        source_options({**READ, "endingoffsets": "earliest"}, streaming=False)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"topic": "t"}, "kafka.bootstrap.servers"),
        ({"kafka.bootstrap.servers": "h:1", "topic": "no such/name"}, "no such/name"),
        ({"kafka.bootstrap.servers": "h:1", "subscribe": "t"}, "subscribe"),
        ({"kafka.bootstrap.servers": "h:1", "kafka.value.serializer": "x"}, "kafka.value.serializer"),
        ({"kafka.bootstrap.servers": "h:1", "kafka.transactional.id": "x"}, "use deliveryGuarantee=exactly-once"),
        ({"kafka.bootstrap.servers": "h:1", "deliveryguarantee": "twice"}, "deliveryGuarantee='twice': expected at-"),
        ({"kafka.bootstrap.servers": "h:1", "sinkid": "orders"}, "sinkId='orders' is of no use without"),
        ({**EXACTLY_ONCE, "sinkid": "a/b"}, "sinkId='a/b': expected 1 to 249"),
        ({**EXACTLY_ONCE, "sinkid": ""}, "sinkId='': expected 1 to 249"),
        ({**EXACTLY_ONCE, "asyncprogresstrackingenabled": "true"}, "asyncprogresstrackingenabled"),
    ],
)
def test_a_bad_sink_option_is_refused_by_name(given, named):
    with pytest.raises(ConfigError, match=named):
        sink_options(given)


def test_spark_s_own_options_pass():
    assert sink_options({"kafka.bootstrap.servers": "h:1", "checkpointlocation": "/tmp/x", "path": "x"}).topic is None


def test_a_sink_delivers_at_least_once_unless_told_otherwise():
    assert not sink_options({"kafka.bootstrap.servers": "h:1"}).exactly_once
    assert not sink_options({"kafka.bootstrap.servers": "h:1", "deliveryguarantee": "at-least-once"}).exactly_once
    named = sink_options({**EXACTLY_ONCE, "sinkid": "orders"})
    assert (named.exactly_once, named.sink_id) == (True, "orders")
    assert sink_options(EXACTLY_ONCE).sink_id == "spark"
