"""The Producer's callbacks and interceptors: the order of the calls, and the errors that they raise."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable

import pytest

from klamm.errors import BufferExhaustedError, ErrorCode, IllegalStateError
from klamm.producer import AsyncProducer, Producer, ProducerInterceptor, ProducerRecord, RecordMetadata
from tests.support.scripted_broker import Answer, ScriptedCluster
from tests.support.scripted_producer import numbered, producing
from tests.support.waiting import patience


def test_callbacks_run_in_order_and_before_flush_returns() -> None:
    delivered: list[int] = []
    with producing(batch_size=200) as (producer, _):
        for value in numbered(300):
            producer.send("t", value, on_delivery=lambda metadata, error: delivered.append(metadata.offset))
        producer.flush(patience())

        assert delivered == list(range(300))


def test_a_failing_callback_is_logged_and_the_producer_continues(caplog: pytest.LogCaptureFixture) -> None:
    with producing() as (producer, _):
        producer.send("t", b"v", on_delivery=lambda metadata, error: 1 / 0).result(patience())
        producer.send("t", b"v").result(patience())

    assert "ZeroDivisionError" in caplog.text


def test_a_callback_may_send_but_not_block() -> None:
    errors: list[Exception] = []
    with producing() as (producer, cluster):

        def on_delivery(metadata: RecordMetadata | None, error: Exception | None) -> None:
            future = producer.send("t", b"second")
            for blocking in (future.result, producer.flush, producer.close):
                with pytest.raises(IllegalStateError, match="callback"):
                    blocking()
                errors.append(IllegalStateError())

        producer.send("t", b"first", on_delivery=on_delivery).result(patience())
        producer.flush(patience())

        assert len(errors) == 3
        assert cluster.values("t") == [b"first", b"second"]


def test_a_callback_that_finds_no_memory_gets_an_error_without_waiting() -> None:
    errors: list[BufferExhaustedError] = []
    with producing(buffer_memory=100_000, max_block_ms=1_000_000_000) as (producer, _):

        def on_delivery(metadata: RecordMetadata | None, error: Exception | None) -> None:
            try:
                while True:
                    producer.send("t", bytes(1_000))
            except BufferExhaustedError as exhausted:
                errors.append(exhausted)

        producer.send("t", b"first", on_delivery=on_delivery).result(patience())
        producer.flush(patience())

    (error,) = errors
    assert "max.block.ms" not in str(error)
    assert str(error).endswith("bytes are free. A callback or destructor on the producer's own thread does not wait")


class Recorder(ProducerInterceptor):
    """Marks records and keeps their outcomes."""

    def __init__(self) -> None:
        self.outcomes: list[int | str] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(value=record.value + b"!")

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        self.outcomes.append(metadata.offset if metadata else type(error).__name__)


class Broken(ProducerInterceptor):
    """An interceptor whose methods all fail."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise LookupError("broken on_send")

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        raise LookupError("broken on_acknowledgement")


def test_interceptors_change_records_and_see_outcomes_and_their_errors_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = Recorder()
    with producing(interceptor_classes=[Broken(), recorder]) as (producer, cluster):
        producer.send("t", b"a").result(patience())
        cluster.produce_answers.append(Answer(error=ErrorCode.INVALID_RECORD))
        producer.send("t", b"b").exception(patience())

        assert cluster.values("t") == [b"a!"]
        assert recorder.outcomes == [0, "InvalidRecordError"]
    assert "broken on_send" in caplog.text
    assert "broken on_acknowledgement" in caplog.text


class Exits(ProducerInterceptor):
    """An interceptor that ends the program when a record is acknowledged."""

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        raise SystemExit(3)


def delivered(producer: Producer) -> None:
    producer.send("t", b"v", on_delivery=lambda *_: sys.exit(3))


def done(producer: Producer) -> None:
    producer.send("t", b"v").add_done_callback(lambda _: sys.exit(3))


def intercepted(producer: Producer) -> None:
    producer.send("t", b"v")


@pytest.mark.parametrize("sends", [delivered, done, intercepted])
def test_an_exit_in_a_callback_is_raised_by_the_next_call_that_waits(sends: Callable[[Producer], None]) -> None:
    settings = {"interceptor_classes": (Exits(),)} if sends is intercepted else {}
    with producing(**settings) as (producer, _):
        sends(producer)
        with pytest.raises(SystemExit):
            producer.flush(patience())
        later = producer.send("t", b"later")
        with contextlib.suppress(SystemExit):
            producer.flush(patience())
        assert later.result(patience()).offset == 1
        with contextlib.suppress(SystemExit):
            producer.close(patience())


def test_a_test_that_fails_in_a_callback_fails_in_close() -> None:
    with pytest.raises(pytest.fail.Exception, match="not what I expected"), producing() as (producer, _):
        producer.send("t", b"v", on_delivery=lambda *_: pytest.fail("not what I expected"))


def test_a_send_raises_the_exit_of_a_callback_when_it_begins_a_batch() -> None:
    with producing(batch_size=0) as (producer, _):
        exited = threading.Event()

        def on_delivery(metadata: RecordMetadata | None, error: Exception | None) -> None:
            exited.set()
            sys.exit(3)

        future = producer.send("t", b"v", on_delivery=on_delivery)
        assert exited.wait(patience())
        while not future.done():
            exited.wait(0)
        with pytest.raises(SystemExit):
            producer.send("t", b"v")
        assert producer.send("t", b"v").result(patience()).offset == 1


def test_an_exit_in_a_callback_of_an_async_producer_is_raised_by_flush() -> None:
    cluster = ScriptedCluster()
    cluster.create_topic("t", 1)

    async def run() -> None:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap) as producer:
            await producer.send("t", b"v", on_delivery=lambda *_: sys.exit(3))
            with pytest.raises(SystemExit):
                await producer.flush()
            assert (await producer.send_and_wait("t", b"later")).offset == 1

    with cluster.serve_in_thread():
        asyncio.run(run())
