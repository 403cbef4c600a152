"""A send blocks while the Producer's memory is used up, for at most max.block.ms."""

from __future__ import annotations

import threading

import pytest

from klamm.errors import BufferExhaustedError
from tests.support.scripted_broker import Answer
from tests.support.scripted_producer import SHORT_MS, numbered, producing
from tests.support.waiting import patience


def test_send_blocks_while_memory_is_used_up_and_goes_on_when_it_is_free() -> None:
    release = threading.Event()
    with producing(buffer_memory=2_000, batch_size=500) as (producer, cluster):
        cluster.produce_answers.append(Answer(wait_for=release))
        finished = threading.Event()

        def send() -> None:
            for value in numbered(200):
                producer.send("t", value)
            finished.set()

        thread = threading.Thread(target=send)
        thread.start()
        while not producer.metrics()["waiting-threads"]:
            assert not finished.wait(0.001)
        assert producer.metrics()["waiting-threads"] == 1
        release.set()
        assert finished.wait(patience())
        thread.join()
        producer.flush(patience())

        assert cluster.values("t") == numbered(200)


def test_send_fails_when_no_memory_is_free_within_max_block_ms() -> None:
    release = threading.Event()
    with producing(buffer_memory=1_000, batch_size=500, max_block_ms=SHORT_MS) as (producer, cluster):
        producer.partitions_for("t")
        cluster.produce_answers.append(Answer(wait_for=release))
        producer.send("t", b"x" * 400)
        producer.send("t", b"x" * 400)
        with pytest.raises(BufferExhaustedError, match=r"max\.block\.ms=2000.*buffer\.memory=1000"):
            producer.send("t", b"x" * 400)
        release.set()
