"""Tests the Consumer for threads, as far as it needs no server."""

from __future__ import annotations

from klamm import Consumer, TopicPartition
from klamm.consumer import sync_consumer
from klamm.threads import caller_thread, loop_call
from tests.support.interrupts import interrupted_everywhere

NOBODY = "127.0.0.1:1"


def test_a_consumer_stays_usable_after_an_interrupt_at_any_line() -> None:
    partition = TopicPartition("t", 0)
    with Consumer(bootstrap_servers=NOBODY) as consumer:

        def run() -> None:
            consumer.assign([partition])
            assert consumer.poll(timeout_ms=0) == {}

        def check() -> None:
            assert consumer.assignment() <= {partition}

        interrupts = interrupted_everywhere(run, sync_consumer, caller_thread, loop_call, check=check)

        assert interrupts > 1
        assert consumer.assignment() == {partition}
