"""Signals and destructors that interrupt a Producer at any instruction. They raise an exception or use the producer.

Also records that cannot be encoded, which fail alone."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from klamm.core import core
from klamm.producer import Producer, RecordFuture, accumulator, batch, engine, future, producer
from klamm.threads import loop_call, loop_thread, waiting_threads
from klamm.threads.loop_thread import LoopThread
from tests.support.interrupts import interrupted_everywhere
from tests.support.scripted_broker import ScriptedCluster
from tests.support.scripted_producer import producing
from tests.support.waiting import patience

MODULES = (accumulator, batch, engine, future, producer, loop_thread)
WAITING = (*MODULES, loop_call, waiting_threads, threading, contextlib, concurrent.futures._base)
"""The modules of a thread that waits, with those of Python."""
LINGER_MS = 60_000
"""Only a flush or a full batch ends the waiting of records."""
VALUE_BYTES = 200
BATCH_BYTES = 600
"""The size of a batch of two records."""


class Sends:
    """Sends records to two partitions, and checks what became of them."""

    def __init__(self, producer: Producer, cluster: ScriptedCluster) -> None:
        self.producer = producer
        self.sent: list[tuple[int, bytes, RecordFuture]] = []
        self.called: list[bytes] = []
        """The values whose callbacks were called."""
        self._cluster = cluster
        self._count = 0
        self.buffer_bytes = producer.metrics()["buffer-available-bytes"]

    def send(self, partition: int) -> None:
        self._count += 1
        value = str(self._count).encode().ljust(VALUE_BYTES)
        future = self.producer.send("t", value, partition=partition, on_delivery=lambda *_: self.called.append(value))
        self.sent.append((partition, value, future))

    def send_some(self) -> None:
        """Sends records that open, fill and close batches."""
        for partition in (0, 1, 1, 1):
            self.send(partition)

    def check(self) -> None:
        """Raises AssertionError unless the records of all sends that returned are written once, at the offsets in their
        futures. The memory and the lock must be free again."""
        assert self._is_lock_free()
        self.producer.flush(patience())
        values = [self._cluster.values("t", partition) for partition in (0, 1)]
        for partition, value, sent in self.sent:
            assert sent.exception(0) is None
            assert values[partition][sent.result(0).offset] == value
            assert self.called.count(value) == 1
        assert len(set(values[0] + values[1])) == len(values[0] + values[1])
        assert self.producer.metrics()["buffer-available-bytes"] == self.buffer_bytes
        self.sent.clear()
        self.called.clear()

    def _is_lock_free(self) -> bool:
        """Returns whether another thread can acquire the producer's lock, after short work of the event loop."""
        lock = LoopThread.shared().lock
        with ThreadPoolExecutor(1) as other:
            is_free = other.submit(lock.acquire, timeout=patience()).result()
            if is_free:
                other.submit(lock.release).result()
            return is_free


def warmed(producer: Producer, cluster: ScriptedCluster) -> Sends:
    """Returns the sends of a producer that has already written to both partitions."""
    sends = Sends(producer, cluster)
    sends.send_some()
    sends.check()
    return sends


def test_ctrl_c_at_any_instruction_loses_no_record_that_was_sent() -> None:
    with producing(2, linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as (a_producer, cluster):
        sends = warmed(a_producer, cluster)
        assert interrupted_everywhere(sends.send_some, *MODULES, check=sends.check, is_signal=True) > 100


def test_ctrl_c_while_a_thread_waits_for_a_record_is_raised_as_it_is() -> None:
    with producing(2, batch_size=BATCH_BYTES) as (a_producer, cluster):
        sends = warmed(a_producer, cluster)

        def send_and_wait() -> None:
            sends.send(0)
            sends.sent[-1][2].result(patience())

        assert interrupted_everywhere(send_and_wait, *WAITING, check=sends.check, is_signal=True) > 30


def test_ctrl_c_while_a_thread_waits_for_memory_is_raised_as_it_is() -> None:
    with producing(2, batch_size=BATCH_BYTES, buffer_memory=BATCH_BYTES) as (a_producer, cluster):
        sends = warmed(a_producer, cluster)
        assert interrupted_everywhere(sends.send_some, *WAITING, check=sends.check, is_signal=True) > 100


def flushes(sends: Sends) -> None:
    sends.producer.flush(patience())


def sends_and_flushes(sends: Sends) -> None:
    sends.send(1)
    sends.producer.flush(patience())


def fills_a_batch_and_waits(sends: Sends) -> None:
    sends.send(0)
    sends.send(0)
    sends.sent[-2][2].result(patience())


def sends_many(sends: Sends) -> None:
    sends.send_some()


@pytest.mark.parametrize("handler", [flushes, sends_and_flushes, fills_a_batch_and_waits, sends_many])
def test_a_signal_handler_may_use_the_producer_that_it_interrupts(handler: Callable[[Sends], None]) -> None:
    with producing(2, linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as (a_producer, cluster):
        sends = warmed(a_producer, cluster)
        count = interrupted_everywhere(
            sends.send_some, *MODULES, check=sends.check, interrupt=lambda: handler(sends), is_signal=True
        )
        assert count > 100


def test_a_destructor_may_send_at_any_instruction_of_the_producer() -> None:
    """The garbage collector may run it while any object is created."""
    with producing(2, linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as (a_producer, cluster):
        sends = warmed(a_producer, cluster)
        count = interrupted_everywhere(
            sends.send_some, *MODULES, check=sends.check, interrupt=lambda: sends.send(1), step=7
        )
        assert count > 200


class Odd(int):
    """A timestamp that passes the checks of `send` but cannot be encoded."""

    def __sub__(self, other: int) -> int:
        raise ArithmeticError("odd")

    __rsub__ = __sub__


@pytest.mark.skipif(core is not None, reason="the compiled core encodes each record when it is appended")
@pytest.mark.parametrize("idempotent", [True, False])
def test_only_a_batch_that_cannot_be_encoded_fails(idempotent: bool) -> None:
    with producing(2, linger_ms=LINGER_MS, batch_size=BATCH_BYTES, enable_idempotence=idempotent) as (a_producer, _):
        value = bytes(VALUE_BYTES)
        good = [a_producer.send("t", value, partition=number) for number in (0, 1, 1)]
        odd = [a_producer.send("t", value, partition=1, timestamp_ms=Odd(number + 1)) for number in range(2)]
        good += [a_producer.send("t", value, partition=1) for _ in range(2)]
        a_producer.flush(patience())
        assert [one.exception(0) for one in good] == [None] * 5
        assert all(isinstance(one.exception(0), ArithmeticError) for one in odd)
        later = a_producer.send("t", value, partition=1)
        a_producer.flush(patience())
        assert later.result(0).offset == 4
