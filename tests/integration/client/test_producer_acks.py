"""The acks of the Producer's requests, and the limit of its requests in flight."""

from __future__ import annotations

import threading

import pytest

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from tests.support.scripted_broker import Answer, ScriptedCluster
from tests.support.scripted_producer import numbered, producing
from tests.support.waiting import patience, wait_until


def test_with_acks_0_the_future_completes_without_an_offset() -> None:
    with producing(acks=0) as (producer, cluster):
        assert producer.send("t", b"v").result(patience()).offset == -1
        assert cluster.values("t") == [b"v"]
        assert cluster.produced[0].header.acks == 0


def test_with_acks_0_a_record_that_the_old_leader_refuses_is_sent_to_the_new_leader() -> None:
    """Before, the client did not read the answer and sent to the old leader until its metadata were old."""
    with producing(cluster=ScriptedCluster(broker_count=2), acks=0) as (producer, cluster):
        producer.send("t", b"first").result(patience())
        cluster.move_leader(TopicPartition("t", 0), 1)

        assert producer.send("t", b"second").result(patience()).offset == -1

        assert cluster.values("t") == [b"first", b"second"]
        assert cluster.produced[-1].broker_id == 1


def test_with_acks_0_a_record_that_the_broker_refuses_fails() -> None:
    with producing(acks=0) as (producer, cluster):
        cluster.produce_answers.append(Answer(error=ErrorCode.INVALID_RECORD))
        with pytest.raises(BrokerError, match="INVALID_RECORD"):
            producer.send("t", b"refused").result(patience())
        producer.send("t", b"next").result(patience())

        assert cluster.values("t") == [b"next"]


@pytest.mark.parametrize(("setting", "acks"), [("all", -1), (1, 1)])
def test_the_acks_setting_and_client_id_are_sent_to_the_broker(setting: object, acks: int) -> None:
    with producing(acks=setting, client_id="me") as (producer, cluster):
        producer.send("t", b"v").result(patience())
        assert (cluster.produced[0].header.acks, cluster.produced[0].header.client_id) == (acks, "me")


def test_the_number_of_requests_in_flight_is_limited() -> None:
    with producing(10, batch_size=100, max_in_flight_requests_per_connection=2) as (producer, cluster):
        for number in range(500):
            producer.send("t", b"v" * 50, partition=number % 10)
        producer.flush(patience())

        assert cluster.in_flight_max <= 2


def test_batches_that_wait_for_a_request_in_flight_are_sent_together() -> None:
    release = threading.Event()
    with producing(batch_size=200) as (producer, cluster):
        cluster.produce_answers.append(Answer(wait_for=release))
        producer.send("t", b"first")
        wait_until(lambda: cluster.produced)
        for value in numbered(100):
            producer.send("t", value)
        release.set()
        producer.flush(patience())

        assert cluster.values("t") == [b"first", *numbered(100)]
        assert max(count for seen in cluster.produced for count in seen.batch_counts) > 5
        assert len(cluster.produced) < 5
