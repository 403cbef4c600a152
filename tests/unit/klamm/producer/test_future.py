from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial

import pytest

from klamm.errors import DeliveryTimeoutError, IllegalStateError
from klamm.model import TopicPartition
from klamm.producer.future import AsyncRecordFuture, BatchFuture, RecordFuture
from klamm.producer.record import RecordMetadata
from klamm.producer.result import BatchResult, RecordsOutcome
from klamm.producer.user_calls import UserCalls
from klamm.records import RawRecord
from klamm.threads.loop_thread import LoopThread

TP = TopicPartition("t", 3)
RECORDS: list[RawRecord] = [(100, b"k", b"value", ()), (200, None, None, ()), (300, b"", b"v", ())]
GOOD = RecordsOutcome(0, 40, -1, None)


def result(*outcomes: RecordsOutcome, parts: int = 1) -> BatchResult:
    made = BatchResult(TP, RECORDS, UserCalls())
    made.split(parts)
    for outcome in outcomes:
        made.settle(outcome)
    return made


def test_each_future_returns_the_offset_timestamp_and_sizes_of_its_record() -> None:
    done = result(GOOD)

    assert RecordFuture(done, 0).result() == RecordMetadata("t", 3, 40, 100, 1, 5)
    assert RecordFuture(done, 1).result() == RecordMetadata("t", 3, 41, 200, -1, -1)
    assert RecordFuture(done, 2).result() == RecordMetadata("t", 3, 42, 300, 0, 1)


def test_log_append_time_replaces_the_timestamp() -> None:
    assert RecordFuture(result(RecordsOutcome(0, 40, 999, None)), 1).result().timestamp_ms == 999


def test_without_acknowledgement_the_offset_is_minus_one() -> None:
    assert RecordFuture(result(RecordsOutcome(0, -1, -1, None)), 2).result().offset == -1


def test_a_future_raises_and_returns_the_error() -> None:
    error = DeliveryTimeoutError("late")
    future = RecordFuture(result(RecordsOutcome(0, -1, -1, error)), 1)

    assert future.exception() is error
    with pytest.raises(DeliveryTimeoutError, match="late"):
        future.result()


def test_a_split_batch_is_done_with_its_last_part_and_each_part_has_its_own_outcome() -> None:
    error = DeliveryTimeoutError("late")
    split = result(RecordsOutcome(2, -1, -1, error), parts=2)
    assert not split.done

    split.settle(RecordsOutcome(0, 70, -1, None))

    assert [RecordFuture(split, index).exception() for index in range(3)] == [None, None, error]
    assert RecordFuture(split, 1).result().offset == 71


def test_result_waits_until_another_thread_sets_the_outcome() -> None:
    class SettledByAThread(BatchResult):
        """A batch result that another thread settles as soon as a caller waits for it."""

        def add_done_callback(self, function: Callable[[], object]) -> None:
            super().add_done_callback(function)
            settling.start()

    pending = SettledByAThread(TP, RECORDS, UserCalls())
    settling = threading.Thread(target=pending.settle, args=[GOOD])

    assert RecordFuture(pending, 0).result(timeout=60).offset == 40
    settling.join()


def test_result_raises_a_timeout_error_after_its_timeout() -> None:
    with pytest.raises(TimeoutError, match="no outcome after 0 s"):
        RecordFuture(result(), 0).result(timeout=0)


def test_result_in_the_event_loop_thread_is_refused() -> None:
    async def wait() -> None:
        RecordFuture(result(), 0).result()

    with pytest.raises(IllegalStateError, match="callback"):
        LoopThread.shared().run(wait)


def test_callbacks_run_once_in_order_and_immediately_if_the_future_is_done() -> None:
    called: list[str] = []
    pending = result()
    future = RecordFuture(pending, 0)
    future.add_done_callback(lambda each: called.append(f"first {each.result().offset}"))
    future.add_done_callback(lambda each: called.append("second"))
    assert called == []

    pending.settle(GOOD)
    future.add_done_callback(lambda each: called.append("late"))

    assert called == ["first 40", "second", "late"]


def test_failing_callback_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    called: list[str] = []
    pending = result()
    future = RecordFuture(pending, 0)
    future.add_done_callback(lambda each: 1 / 0)
    future.add_done_callback(lambda each: called.append("second"))

    pending.settle(GOOD)

    assert called == ["second"]
    assert "ZeroDivisionError" in caplog.text


def test_callbacks_added_while_another_thread_sets_the_outcome_run_exactly_once() -> None:
    for _ in range(200):
        pending = result()
        called: list[int] = []
        settler = threading.Thread(target=pending.settle, args=[GOOD])
        settler.start()
        for number in range(20):
            pending.add_done_callback(partial(called.append, number))
        settler.join()
        assert sorted(called) == list(range(20))


def test_async_future_is_awaited_any_number_of_times() -> None:
    async def main() -> None:
        pending = result()
        future = AsyncRecordFuture(pending, 1)
        with pytest.raises(asyncio.InvalidStateError):
            future.result()
        asyncio.get_running_loop().call_soon(pending.settle, GOOD)

        assert (await future).offset == 41
        assert (await future).offset == 41
        assert future.done()

    asyncio.run(main())


def test_cancelled_waiter_does_not_disturb_the_others() -> None:
    async def main() -> None:
        pending = result()

        async def wait() -> RecordMetadata:
            return await AsyncRecordFuture(pending, 0)

        cancelled, other = asyncio.create_task(wait()), asyncio.create_task(wait())
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.sleep(0)
        pending.settle(GOOD)

        assert (await other).offset == 40
        assert cancelled.cancelled()

    asyncio.run(main())


def test_a_future_shows_its_partition_and_what_is_known() -> None:
    failed = RecordsOutcome(0, -1, -1, DeliveryTimeoutError("too late"))
    assert repr(RecordFuture(result(), 0)) == "<RecordFuture t-3 waiting>"
    assert repr(RecordFuture(result(GOOD), 1)) == "<RecordFuture t-3 offset=41>"
    assert repr(RecordFuture(result(failed), 1)) == "<RecordFuture t-3 error=DeliveryTimeoutError('too late')>"
    assert repr(AsyncRecordFuture(result(GOOD), 0)) == "<AsyncRecordFuture t-3 offset=40>"


def test_get_returns_or_raises_as_result_does() -> None:
    assert RecordFuture(result(GOOD), 0).get(timeout=1) == RecordFuture(result(GOOD), 0).result()
    with pytest.raises(DeliveryTimeoutError, match="too late"):
        RecordFuture(result(RecordsOutcome(0, -1, -1, DeliveryTimeoutError("too late"))), 0).get()


def test_a_wait_that_times_out_leaves_no_callback_behind() -> None:
    """A program may ask for the outcome again and again."""
    waiting = result()

    async def await_it() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(AsyncRecordFuture(waiting, 0), 0.001)
        await asyncio.sleep(0)

    for _ in range(3):
        with pytest.raises(TimeoutError):
            RecordFuture(waiting, 0).result(0.001)
        with pytest.raises(TimeoutError):
            BatchFuture(waiting).result(0.001)
        asyncio.run(await_it())
    assert not waiting._callbacks
