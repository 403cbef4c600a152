"""Flush and close of the Producer wait for the records that it holds, and give each record an outcome."""

from __future__ import annotations

import threading

import pytest

from klamm.errors import IllegalStateError
from klamm.producer import Producer
from tests.support.scripted_broker import Answer, ScriptedCluster
from tests.support.scripted_producer import numbered, producing
from tests.support.waiting import patience


def test_flush_does_not_wait_for_linger_but_for_every_acknowledgement() -> None:
    with producing(linger_ms=60_000) as (producer, cluster):
        future = producer.send("t", b"v")

        producer.flush(patience())

        assert future.done()
        assert cluster.values("t") == [b"v"]


def test_flush_raises_an_error_after_its_timeout() -> None:
    release = threading.Event()
    with producing() as (producer, cluster):
        cluster.produce_answers.append(Answer(wait_for=release))
        producer.send("t", b"v")
        with pytest.raises(TimeoutError):
            producer.flush(0.02)
        release.set()


def test_close_sends_what_is_buffered() -> None:
    with producing(linger_ms=60_000) as (producer, cluster):
        producer.send("t", b"v")
        producer.close(patience())
        assert cluster.values("t") == [b"v"]
        producer.close()


def test_close_fails_the_unfinished_records_after_its_timeout() -> None:
    release = threading.Event()
    with producing() as (producer, cluster):
        cluster.produce_answers.append(Answer(wait_for=release))
        in_flight = producer.send("t", b"v")
        cluster_saw = threading.Event()
        while not cluster.produced:
            cluster_saw.wait(0.001)
        waiting = producer.send("t", b"w")

        producer.close(0.02)

        for future in (in_flight, waiting):
            assert isinstance(future.exception(0), IllegalStateError)
        release.set()


def test_closed_producer_takes_no_records() -> None:
    with producing() as (producer, _):
        producer.send("t", b"v").result(patience())
        producer.close()
        with pytest.raises(IllegalStateError, match="closed"):
            producer.send("t", b"v")
        with pytest.raises(IllegalStateError, match="closed"):
            producer.send("another", b"v")


def test_a_send_that_waits_for_metadata_fails_when_the_producer_is_closed() -> None:
    errors: list[Exception] = []
    with producing() as (producer, cluster):

        def send() -> None:
            try:
                producer.send("missing", b"v")
            except IllegalStateError as error:
                errors.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        asked = threading.Event()
        while not cluster.metadata_count:
            asked.wait(0.001)
        producer.close()
        thread.join(patience())

        assert len(errors) == 1


def test_close_without_a_wait_completes_the_future_of_every_record() -> None:
    cluster = ScriptedCluster()
    cluster.create_topic("t", 3)
    with cluster.serve_in_thread():
        for _ in range(20):
            producer = Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0, batch_size=200)
            futures = [producer.send("t", value, partition=int(value) % 3) for value in numbered(60)]
            producer.close(0)
            assert all(future.done() for future in futures)
