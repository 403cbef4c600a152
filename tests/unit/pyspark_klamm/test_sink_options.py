"""Tests the options of the Spark sink: the accepted and the refused ones, by name."""

from __future__ import annotations

import pytest

from klamm.errors import ConfigError
from pyspark_klamm.sink_options import sink_options

EXACTLY_ONCE = {"kafka.bootstrap.servers": "h:1", "deliveryguarantee": "exactly-once"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"topic": "t"}, "kafka.bootstrap.servers"),
        ({"kafka.bootstrap.servers": "h:1", "topic": "no such/name"}, "no such/name"),
        ({"kafka.bootstrap.servers": "h:1", "subscribe": "t"}, "subscribe"),
        ({"kafka.bootstrap.servers": "h:1", "kafka.value.serializer": "x"}, "kafka.value.serializer"),
        ({"kafka.bootstrap.servers": "h:1", "kafka.transactional.id": "x"}, "use deliveryGuarantee=exactly-once"),
        (
            {"kafka.bootstrap.servers": "h:1", "deliveryguarantee": "twice"},
            "deliveryGuarantee: 'twice' is not",
        ),
        ({"kafka.bootstrap.servers": "h:1", "deliveryguarante": "x"}, "did you mean deliveryGuarantee?"),
        ({"kafka.bootstrap.servers": "h:1", "sinkid": "orders"}, "sinkId='orders' has no effect without"),
        ({**EXACTLY_ONCE, "sinkid": "a/b"}, "sinkId='a/b': expected 1 to 249"),
        ({**EXACTLY_ONCE, "sinkid": ""}, "sinkId='': expected 1 to 249"),
        ({**EXACTLY_ONCE, "asyncprogresstrackingenabled": "true"}, "asyncprogresstrackingenabled"),
    ],
)
def test_a_bad_sink_option_is_refused_by_name(given, named):
    with pytest.raises(ConfigError, match=named):
        sink_options(given)


def test_sparks_own_options_are_accepted():
    assert sink_options({"kafka.bootstrap.servers": "h:1", "checkpointlocation": "/tmp/x", "path": "x"}).topic is None


def test_a_sink_delivers_at_least_once_by_default():
    assert not sink_options({"kafka.bootstrap.servers": "h:1"}).exactly_once
    assert not sink_options({"kafka.bootstrap.servers": "h:1", "deliveryguarantee": "at-least-once"}).exactly_once
    named = sink_options({**EXACTLY_ONCE, "sinkid": "orders"})
    assert (named.exactly_once, named.sink_id) == (True, "orders")
    assert sink_options(EXACTLY_ONCE).sink_id == "spark"
