"""Tests which servers `klamm top` watches, and which values it reads from a metrics endpoint."""

from __future__ import annotations

import pytest

from klamm.admin import ClusterDescription
from klamm.errors import ConfigError
from klamm.model import TopicPartition
from klamm_cli.top.metrics_text import parse_endpoint, parse_metrics
from klamm_cli.top.watcher import GROUPS_MAX, PARTITIONS_MAX, choose_groups, choose_topics, health_of
from tests.support.status_world import partition, server, topic

TOPICS = {
    "orders-b": topic("orders-b", partition(0), partition(1, leader=-1)),
    "orders-a": topic("orders-a", partition(0, leader=3)),
    "other": topic("other", partition(0)),
    "__consumer_offsets": topic("__consumer_offsets", partition(0), internal=True),
}


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (None, ["orders-a", "orders-b", "other"]),
        ("orders-*", ["orders-a", "orders-b"]),
        ("*", ["__consumer_offsets", "orders-a", "orders-b", "other"]),
        ("orders-?x", []),
    ],
)
def test_topics_are_chosen_by_a_pattern(pattern, names):
    leaders, left_out = choose_topics(TOPICS, pattern)
    assert [tp.topic for tp in leaders] == names
    assert left_out == ""


def test_partitions_without_a_leader_are_not_watched():
    leaders, _ = choose_topics(TOPICS, "orders-*")
    assert leaders == {TopicPartition("orders-a", 0): 3, TopicPartition("orders-b", 0): 1}


def test_topics_beyond_the_partition_limit_are_left_out_as_a_whole():
    large = topic("large", *(partition(number) for number in range(PARTITIONS_MAX)))
    leaders, left_out = choose_topics({**TOPICS, "large": large}, None)
    assert len(leaders) == PARTITIONS_MAX
    assert left_out == "3 of 4 topics are not watched: name some with --topics"


def test_groups_with_members_are_watched_first():
    states = {f"e{number:03d}": "Empty" for number in range(GROUPS_MAX)} | {"z": "Stable"}
    chosen, left_out = choose_groups(states, None)
    assert list(chosen)[:2] == ["z", "e000"]
    assert left_out == f"1 of {GROUPS_MAX + 1} groups are not watched: name some with --groups"
    assert choose_groups(states, "z*") == ({"z": "Stable"}, "")


def test_metrics_are_read_by_name_and_topic():
    found = parse_metrics(
        "# HELP klamm_broker_in_bytes_total Record batches appended for producers.\n"
        'klamm_broker_in_bytes_total{topic="a"} 10.0\n'
        'klamm_broker_in_bytes_created{topic="a"} 1.7e+09\n'
        'klamm_broker_out_bytes_total{topic="a"} 2.5e+03\n'
        'klamm_broker_requests_total{rpc="produce"} 3.0\n'
        'klamm_broker_kafka_requests_total{api="Fetch",version="17"} 4.0\n'
        "klamm_broker_partitions 12.0\n"
        "process_open_fds 9.0\n"
        "klamm_broker_nonsense\n"
    )
    assert (found.bytes_in, found.bytes_out, found.requests) == ({"a": 10.0}, {"a": 2_500.0}, 7.0)


def test_a_metrics_endpoint_must_be_a_host_and_a_port():
    assert parse_endpoint("h:9404") == ("h", 9404)
    assert parse_endpoint("[::1]:9404") == ("::1", 9404)
    for wrong in ("h", ":1", "h:x", "h:0", "h:70000"):
        with pytest.raises(ConfigError, match="--metrics"):
            parse_endpoint(wrong)


def test_the_line_of_health_names_missing_brokers_and_counts_partitions():
    cluster = ClusterDescription(
        cluster_id="c",
        controller_id=1,
        controllers=(),
        brokers=(server(1), server(2, fenced=True)),
        coordinators=(),
        metadata_end_index=0,
    )
    text, is_healthy = health_of(cluster, TOPICS)
    assert text == "brokers 1 of 2, missing 2; partitions 5: 1 without a leader, 0 under-replicated"
    assert not is_healthy
