"""Tests that no sequence of events loses, reorders or doubles a record, or reports it twice."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import TopicPartition
from klamm.producer import ProducerConfig
from klamm.producer.accumulator import Accumulator, PartitionQueue
from klamm.producer.batch import Batch
from klamm.producer.result import BatchResult
from klamm.producer.user_calls import UserCalls

ERROR = EXCEPTIONS[ErrorCode.NETWORK_EXCEPTION]("dropped")
PARTITIONS = st.integers(0, 3)
FATES = st.sampled_from(["written", "retry", "split", "failed"])


class AccumulatorMachine(RuleBasedStateMachine):
    """A machine in which broker p % 2 leads partition p.

    A request writes its batches either completely or not at all.
    """

    @initialize(
        batch_size=st.sampled_from([0, 200, 500, 2_000]),
        linger_ms=st.sampled_from([0, 5]),
        retries_max=st.integers(0, 2),
        max_request_size=st.sampled_from([300, 1_000, 10_000]),
        buffer_memory=st.sampled_from([1_000, 5_000, 100_000]),
    )
    def start(self, retries_max: int, **sizes: int) -> None:
        self.retries_max = retries_max
        self.accumulator = Accumulator(
            ProducerConfig.parse(**sizes, request_timeout_ms=50, delivery_timeout_ms=200), lambda: None, UserCalls()
        )
        self.queues = [PartitionQueue(TopicPartition("t", number)) for number in range(4)]
        self.now_ms = 0
        self.count = 0
        self.sent: dict[int, list[int]] = {number: [] for number in range(4)}
        self.written: dict[int, list[int]] = {number: [] for number in range(4)}
        self.drained: dict[Batch, list[int]] = {}
        """The records of each batch that was sent. The batch itself forgets them when it is settled."""
        self.futures: dict[int, tuple[BatchResult, int]] = {}
        self.in_flight: dict[int, PartitionQueue] = {}
        self.append(0, 100, 3)

    @rule(partition=PARTITIONS, size_bytes=st.integers(1, 700), times=st.integers(1, 12))
    def append(self, partition: int, size_bytes: int, times: int) -> None:
        queue = self.queues[partition]
        for _ in range(times):
            record = (self.count, None, None, ())
            entry = self.accumulator.append(queue, record, size_bytes, None)
            if entry is None and self.accumulator.open_batch(queue, size_bytes, self.now_ms):
                entry = self.accumulator.append(queue, record, size_bytes, None)
            if entry is None:
                return
            self.futures[self.count] = entry
            self.sent[partition].append(self.count)
            self.count += 1

    @rule(elapsed_ms=st.sampled_from([1, 5, 50, 250]))
    def pass_time(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms

    @rule(limit=st.integers(1, 3))
    def drain(self, limit: int) -> None:
        busy = {0: 0, 1: 0}
        for partition in self.in_flight:
            busy[partition % 2] += 1
        drained = self.accumulator.drain(lambda tp: tp.partition % 2, busy, limit, self.now_ms)
        for request in drained.requests:
            for queue, batches in request.parts:
                assert queue.tp.partition not in self.in_flight, "one request per partition"
                assert queue.tp.partition % 2 == request.node_id
                assert batches == queue.in_flight
                assert not any(batch.is_expired for batch in batches), "what has failed is not sent again"
                self.in_flight[queue.tp.partition] = queue
                self.drained |= {batch: [record[0] for record in batch.records] for batch in batches}

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), fate=FATES)
    def answer(self, data: st.DataObject, fate: str) -> None:
        queue = self.in_flight.pop(data.draw(st.sampled_from(sorted(self.in_flight))))
        if fate == "retry":
            for batch in self.accumulator.retry(
                queue, ERROR, retry_at_ms=self.now_ms + 3, retries_max=self.retries_max
            ):
                self.settle(batch, is_written=False)
        elif fate == "written":
            for batch in self.accumulator.complete(queue):
                self.written[queue.tp.partition] += self.drained[batch]
                self.settle(batch, is_written=True)
        elif fate == "failed" or not self.accumulator.split(queue):
            for batch in self.accumulator.complete(queue):
                self.settle(batch, is_written=False)

    @rule()
    def expire(self) -> None:
        for batch in self.accumulator.expire(self.now_ms):
            assert batch.created_ms + 200 <= self.now_ms
            assert not batch.is_settled, "a batch expires once"
            self.settle(batch, is_written=False)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), fate=FATES)
    def answer_late(self, data: st.DataObject, fate: str) -> None:
        self.pass_time(250)
        self.expire()
        self.answer(data, fate)

    @rule()
    def flush(self) -> None:
        unsettled = {result for result, _ in self.futures.values() if not result.done}
        assert unsettled <= set(self.accumulator.flush())

    def settle(self, batch: Batch, *, is_written: bool) -> None:
        if batch.is_settled:
            assert batch.is_expired
            return
        batch.is_settled = True
        batch.result.settle(*batch.outcomes(0, -1, None if is_written else ERROR))

    @invariant()
    def nothing_is_written_twice_or_out_of_order(self) -> None:
        for partition, written in getattr(self, "written", {}).items():
            place = {record: index for index, record in enumerate(self.sent[partition])}
            places = [place[record] for record in written]
            assert places == sorted(set(places))

    @invariant()
    def bookkeeping_holds(self) -> None:
        if hasattr(self, "accumulator"):
            self.accumulator.check_invariants()

    def teardown(self) -> None:
        """Lets the brokers work again. Every record must then get exactly one outcome."""
        if not hasattr(self, "accumulator"):
            return
        self.accumulator.close()
        for _ in range(10_000):
            if self.accumulator.is_empty:
                break
            self.now_ms += 1
            for queue in list(self.in_flight.values()):
                for batch in self.accumulator.complete(queue):
                    self.written[queue.tp.partition] += self.drained[batch]
                    self.settle(batch, is_written=True)
            self.in_flight.clear()
            self.drain(limit=1)
        assert self.accumulator.is_empty
        assert self.accumulator.available_bytes == self.accumulator.buffer_bytes
        assert all(result.done for result, _ in self.futures.values())
        self.nothing_is_written_twice_or_out_of_order()
        self.check_outcomes_match_what_was_written()

    def check_outcomes_match_what_was_written(self) -> None:
        written = {record for records in self.written.values() for record in records}
        for record, (result, index) in self.futures.items():
            if result.outcome_of(index).error is None:
                assert record in written, "acknowledged but not written"


AccumulatorMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAccumulator = AccumulatorMachine.TestCase
