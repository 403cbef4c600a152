"""Threads that send with one Producer, which has less memory than they fill."""

from __future__ import annotations

import threading
from typing import Any

from klamm.producer import RecordMetadata
from tests.support.scripted_producer import producing
from tests.support.waiting import patience

THREADS = 8
RECORDS = 2_000
"""The number of records of each thread."""


def test_eight_threads_lose_no_record_and_callbacks_are_in_the_order_of_the_log() -> None:
    called: list[tuple[bytes, RecordMetadata]] = []

    def delivered(value: bytes) -> Any:
        def call(metadata: RecordMetadata | None, error: Exception | None) -> None:
            assert metadata is not None, error
            called.append((value, metadata))

        return call

    with producing(2, batch_size=4_000, buffer_memory=40_000) as (producer, cluster):

        def send(name: int) -> None:
            for number in range(RECORDS):
                value = b"%d:%d" % (name, number)
                producer.send("t", value.ljust(60), partition=name % 2, on_delivery=delivered(value))

        threads = [threading.Thread(target=send, args=[name]) for name in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush(patience())
        logs = [[(value or b"").strip() for value in cluster.values("t", partition)] for partition in (0, 1)]
        assert producer.metrics()["buffer-available-bytes"] == 40_000

    for partition, log in enumerate(logs):
        assert [value for value, metadata in called if metadata.partition == partition] == log
        assert [metadata.offset for _, metadata in called if metadata.partition == partition] == list(range(len(log)))
    for name in range(THREADS):
        mine = [value for value in logs[name % 2] if value.startswith(b"%d:" % name)]
        assert mine == [b"%d:%d" % (name, number) for number in range(RECORDS)]
