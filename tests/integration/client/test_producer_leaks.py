"""The memory of records that were sent: nothing stays of them, and a future that is kept keeps only their sizes.

The limits are a half of what a leak of one object for each record, or of the records' bytes, would take."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator

import psutil
import pytest

from klamm.core import core
from klamm.producer import Producer, RecordFuture
from tests.support.scripted_broker import Answer, ScriptedCluster
from tests.support.scripted_producer import producing
from tests.support.waiting import patience

MANY = 100_000
VALUE = bytes(10_000)
LARGE_COUNT = 20_000
LEAK_BYTES = len(VALUE) * LARGE_COUNT


@pytest.fixture
def sending() -> Iterator[tuple[Producer, ScriptedCluster]]:
    """A producer whose brokers acknowledge records and forget them."""
    with producing(1, batch_size=100_000, buffer_memory=1_000_000, linger_ms=5) as (producer, cluster):
        cluster.usual_answer = Answer(append=False)
        yield producer, cluster


def settled(producer: Producer, cluster: ScriptedCluster) -> None:
    producer.flush(patience())
    cluster.produced.clear()
    gc.collect()


def one_by_one(producer: Producer, count: int) -> None:
    for _ in range(count):
        producer.send("t", b"value", b"key", headers=[("name", b"content")])


def many_at_once(producer: Producer, count: int) -> None:
    producer.send_many("t", [b"value"] * count, keys=[b"key"] * count, headers=[("name", b"content")])


@pytest.mark.parametrize("send", [one_by_one, many_at_once])
def test_no_object_stays_of_records_whose_futures_are_dropped(
    sending: tuple[Producer, ScriptedCluster], send: Callable[[Producer, int], None]
) -> None:
    producer, _ = sending
    send(producer, MANY // 10)
    settled(*sending)
    before = sys.getallocatedblocks()

    send(producer, MANY)

    settled(*sending)
    assert sys.getallocatedblocks() - before < MANY // 2


def grown_bytes(sending: tuple[Producer, ScriptedCluster], send: Callable[[int], object]) -> int:
    """Returns by how much the process has grown after records of LEAK_BYTES."""
    send(LARGE_COUNT // 10)
    settled(*sending)
    before = psutil.Process().memory_info().rss
    send(LARGE_COUNT)
    settled(*sending)
    return psutil.Process().memory_info().rss - before


def test_no_bytes_stay_of_records_whose_futures_are_dropped(sending: tuple[Producer, ScriptedCluster]) -> None:
    producer, _ = sending

    def send(count: int) -> None:
        for _ in range(count):
            producer.send("t", VALUE)

    assert grown_bytes(sending, send) < LEAK_BYTES // 2


@pytest.mark.skipif(core is None, reason="the compiled core copies values; pure Python keeps the caller's objects")
def test_a_future_that_is_kept_keeps_only_the_sizes_of_its_batch(sending: tuple[Producer, ScriptedCluster]) -> None:
    producer, _ = sending
    kept: list[RecordFuture] = []

    def send(count: int) -> None:
        kept.extend(producer.send("t", VALUE) for _ in range(count))

    assert grown_bytes(sending, send) < LEAK_BYTES // 2
    assert {future.result(patience()).serialized_value_size for future in kept} == {len(VALUE)}
