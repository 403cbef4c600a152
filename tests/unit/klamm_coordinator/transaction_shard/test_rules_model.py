"""Tests arbitrary requests, crashes, timeouts and late acknowledgements against the promises to a transactional id.

- Identities only grow, and an answer names the newest one.
- A transaction has one outcome, no matter which client asks and how often.
- A replaced producer changes nothing any more.
- A partition that was permitted to write belongs to the transaction, and learns its outcome.
- A crash loses only unanswered requests (`TransactionDriver.crash` compares).
- When every operation has ended, no transaction is open longer than its timeout, and no request waits.
"""

from __future__ import annotations

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.transaction.messages import EndReply, EndTxn, InitProducerId, InitReply
from klamm_coordinator.transaction.metadata import (
    EPOCH_LAST,
    EPOCH_MAX,
    WITH_BUMP,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from klamm_coordinator.transaction.records import TransactionRecord
from klamm_coordinator.transaction.states import TxnState
from klamm_coordinator.transaction_shard.records import encode_shard_record
from tests.support import seeds
from tests.support.transaction_driver import ID, TIMEOUT_MS, TransactionDriver, partitions

NUMBERS = st.integers(0, 3)
AGES = st.sampled_from([0, 0, 0, 1, 1, 2, 3])


class TransactionalId(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = TransactionDriver()
        self.known: list[ProducerIdAndEpoch] = [ProducerIdAndEpoch(5, 0)]
        """Identities that were given, and one that never was."""
        self.newest = ProducerIdAndEpoch(-1, -1)
        self.replaced = ProducerIdAndEpoch(-1, -1)
        """This one and everybody before it: another producer has taken over."""
        self.outcomes: dict[ProducerIdAndEpoch, bool] = {}
        self.added: defaultdict[ProducerIdAndEpoch, set[TopicPartition]] = defaultdict(set)
        self.requests: dict[int, object] = {}
        self.replaced_before: dict[int, ProducerIdAndEpoch] = {}
        """The producers that had been replaced when a request was made, by reply id."""
        self.seen: set[int] = set()

    @rule(epochs_left=st.integers(0, 3))
    @precondition(lambda self: not self.driver.rules.ids.values and not self.driver.unsent)
    def use_up_epochs(self, epochs_left):
        value = TransactionMetadata(
            producer_id=7,
            producer_epoch=EPOCH_LAST - epochs_left,
            timeout_ms=TIMEOUT_MS,
            state=TxnState.EMPTY,
            last_update_ms=0,
        )
        record = TransactionRecord(ID, value)
        self.driver.log.append(encode_shard_record(record))
        self.driver.rules.replay(record)
        self.known.append(value.producer)
        self.newest = value.producer

    @rule(auto_ack=st.booleans(), auto_markers=st.booleans())
    def set_pace(self, auto_ack, auto_markers):
        self.driver.auto_ack, self.driver.auto_markers = auto_ack, auto_markers
        self.driver.settle()

    @rule()
    def init(self):
        self._asked(self.driver.ask_init(), InitProducerId)

    @rule(age=AGES)
    def recover(self, age):
        expected = self._producer(age)
        self._asked(self.driver.ask_init(expected), (InitProducerId, expected))

    @rule(age=AGES, number=NUMBERS)
    def add(self, age, number):
        producer = self._producer(age)
        self._asked(self.driver.ask_add(producer, number), ("add", producer, partitions(number)))

    @rule(age=AGES, committed=st.booleans())
    def end(self, age, committed):
        producer = self._producer(age)
        self._asked(self.driver.ask_end(producer, committed=committed), (EndTxn, producer, committed))

    def _producer(self, age):
        """Returns a producer by age, where 0 is the newest."""
        known = sorted(set(self.known))
        return known[max(0, len(known) - 1 - age)]

    @rule()
    @precondition(lambda self: self.driver.unsent)
    def ack(self):
        self.driver.ack()

    @rule(error=st.sampled_from([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE]))
    @precondition(lambda self: self.driver.unsent)
    def nack(self, error):
        self.driver.nack(error)

    @rule()
    @precondition(lambda self: self.driver.markers)
    def write_markers(self):
        self.driver.write_markers()

    @rule(duration_ms=st.sampled_from([100, 1_000, 10_000, TIMEOUT_MS]))
    def advance(self, duration_ms):
        self.driver.advance(duration_ms)

    @rule()
    def crash(self):
        self.driver.crash()

    def _asked(self, reply_id, request):
        self.requests[reply_id] = request
        self.replaced_before[reply_id] = self.replaced

    @invariant()
    def answers_keep_promises(self):
        for reply_id in sorted(self.driver.replies.keys() - self.seen):
            self.seen.add(reply_id)
            self._check_answer(reply_id, self.requests[reply_id], self.driver.replies[reply_id])

    def _check_answer(self, reply_id, request, reply):
        if reply.error is not ErrorCode.NONE:
            return
        if request is not InitProducerId:
            assert request[1] > self.replaced_before[reply_id], "another producer has replaced this one"
        if isinstance(reply, InitReply | EndReply):
            assert reply.producer.producer_epoch <= EPOCH_LAST
            assert reply.producer >= self.newest or reply.producer in self.known, "a new identity is the newest"
            self.newest = max(self.newest, reply.producer)
            self.known.append(reply.producer)
        if request is InitProducerId:
            assert reply.producer > self.replaced
            self.replaced = max([one for one in self.known if one < reply.producer], default=self.replaced)
        elif request[0] == "add":
            self.added[request[1]] |= request[2]
        elif request[0] is EndTxn:
            producer, committed = request[1:]
            assert self.outcomes.setdefault(producer, committed) == committed

    @invariant()
    def outcomes_are_one(self):
        for order in self.driver.markers:
            assert order.marker.producer_epoch <= EPOCH_MAX
            assert order.transaction_version == WITH_BUMP, "its epoch ends with a transaction, no matter who ends it"
            assert self.driver.rules.ids.values[ID].state.is_decided, "it is complete before its partitions are told"
            ended = ProducerIdAndEpoch(order.marker.producer_id, order.marker.producer_epoch - 1)
            assert self.outcomes.setdefault(ended, order.committed) == order.committed
            assert self.added[ended] <= order.partitions

    @invariant()
    def open_transactions_are_of_the_newest(self):
        value = self.driver.rules.ids.values.get(ID)
        if value is not None and value.state is TxnState.ONGOING:
            assert value.producer > self.replaced
            assert value.producer not in self.outcomes
            assert self.added[value.producer] <= value.partitions

    @invariant()
    def who_may_write_has_a_transaction(self):
        value = self.driver.rules.ids.values.get(ID)
        if value is not None and self.added[value.producer]:
            assert value.state is TxnState.ONGOING

    def teardown(self):
        self.set_pace(True, True)
        self.driver.advance(TIMEOUT_MS + 2 * self.driver.settings.abort_check_interval_ms)
        value = self.driver.rules.ids.values.get(ID)
        assert value is None or value.state.is_idle
        assert self.driver.shard.pending_write_count == 0
        assert self.driver.asked == self.driver.replies.keys()


TransactionalId.TestCase.settings = settings(max_examples=seeds.examples(200), stateful_step_count=50, deadline=None)
TestTransactionalId = TransactionalId.TestCase
