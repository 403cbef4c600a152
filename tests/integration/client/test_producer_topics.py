"""A send of the Producer to a topic, partition or broker that is missing, invalid or created later."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.errors import EXCEPTIONS, ErrorCode, NoBrokerError
from klamm.producer import Producer
from tests.support.ports import closed_port
from tests.support.scripted_broker import ScriptedCluster
from tests.support.scripted_producer import SHORT_MS, producing
from tests.support.waiting import patience

UnknownTopicError = EXCEPTIONS[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_unknown_topic_is_an_error_after_max_block_ms() -> None:
    with producing(max_block_ms=SHORT_MS) as (producer, _), pytest.raises(UnknownTopicError, match="'missing'"):
        producer.send("missing", b"v")


def test_a_metadata_request_may_create_the_topic() -> None:
    cluster = ScriptedCluster()
    cluster.auto_create_partitions = 2
    with producing(0, cluster=cluster) as (producer, _):
        assert producer.partitions_for("new") == {0, 1}
        assert producer.send("new", b"v").result(patience()).offset == 0


def test_send_waits_for_a_topic_that_is_being_created() -> None:
    with producing() as (producer, cluster):
        cluster.metadata_errors.extend([ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
        assert producer.send("t", b"v").result(patience()).offset == 0


@pytest.mark.parametrize("topic", ["", "a b", "..", 5, None, ["t"]])
def test_bad_topic_name_is_refused_at_once(topic: Any) -> None:
    with producing() as (producer, _), pytest.raises(EXCEPTIONS[ErrorCode.INVALID_TOPIC_EXCEPTION]):
        producer.send(topic, b"v")


def test_a_missing_partition_is_refused_and_accepted_once_it_exists() -> None:
    with producing(2, max_block_ms=SHORT_MS) as (producer, cluster):
        producer.send("t", b"v", partition=1).result(patience())
        with pytest.raises(UnknownTopicError, match=r"2 partition\(s\); there is no partition 2"):
            producer.send("t", b"v", partition=2)
        cluster.topics["t"].append(cluster.topics["t"][0].__class__(leader=0))

        assert producer.send("t", b"v", partition=2).result(patience()).partition == 2


def test_send_raises_no_broker_error_when_no_broker_is_reachable() -> None:
    with (
        closed_port() as port,
        Producer(bootstrap_servers=f"127.0.0.1:{port}", max_block_ms=SHORT_MS) as producer,
        pytest.raises(NoBrokerError, match=str(port)),
    ):
        producer.send("t", b"v")
