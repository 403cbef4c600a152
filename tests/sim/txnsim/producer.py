"""One instance of a transactional producer, as KIP-890 and KIP-588 describe it. It runs one transaction after the
other, each in an epoch of its own. It retries after retriable errors, aborts after abortable ones, and ends after fatal
ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from klamm.errors import ErrorCode
from klamm_coordinator.transaction.messages import EndTxn, InitProducerId
from klamm_coordinator.transaction.metadata import ProducerIdAndEpoch
from tests.sim.txnsim.caller import Caller

if TYPE_CHECKING:
    from tests.sim.txnsim.cluster import Cluster

ABORTABLE = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)


class ProducerInstance(Caller):
    """Runs from its making to `crash`, or to a fatal error."""

    def __init__(self, cluster: Cluster, transactional_id: str) -> None:
        super().__init__(cluster)
        self.transactional_id = transactional_id
        self.committed_count = 0
        self._producer = ProducerIdAndEpoch(-1, -1)
        self._waiting = 0
        """Partitions whose records are not all acknowledged."""
        self._init()

    # The protocol

    def _init(self) -> None:
        fields = {
            "transactional_id": self.transactional_id,
            "timeout_ms": self.cluster.options.transaction_timeout_ms,
            "expected": None,
        }
        self._call(lambda receive: self.cluster.ask(InitProducerId, fields, receive), self._on_init)

    def _on_init(self, reply: Any) -> None:
        code = reply if isinstance(reply, ErrorCode) else reply.error
        if code in AGAIN:
            self._later(self._init)
        elif code is ErrorCode.NONE:
            self._begin(reply.producer)
        else:
            raise AssertionError(f"init: {code.name}")

    def _begin(self, producer: ProducerIdAndEpoch) -> None:
        self._producer = producer
        self._step += 1
        rng = self.cluster.world.rng
        numbers = rng.sample(range(len(self.cluster.partitions)), rng.randint(1, len(self.cluster.partitions)))
        self._waiting = len(numbers)
        for number in numbers:
            self._produce(number, 0, rng.randint(1, 3))

    def _produce(self, number: int, sequence: int, end: int) -> None:
        if sequence == end:
            self._waiting -= 1
            if not self._waiting:
                self._end(committed=self.cluster.world.rng.random() < self.cluster.options.commit_probability)
            return
        partition, producer, value = self.cluster.partitions[number], self._producer, self.cluster.next_value()
        self._try_produce(number, sequence, end, value)
        self.cluster.checks.on_sent(partition, producer, value)

    def _try_produce(self, number: int, sequence: int, end: int, value: int) -> None:
        partition, producer = self.cluster.partitions[number], self._producer

        def send(receive: Callable[[Any], None]) -> None:
            self.cluster.network.send(partition.on_produce, self.transactional_id, producer, sequence, value, receive)

        def on_reply(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self.cluster.checks.on_acknowledged(partition, producer, value)
                self._produce(number, sequence + 1, end)
            elif code in AGAIN:
                self._later(self._try_produce, number, sequence, end, value)
            elif code in ABORTABLE:
                self._end(committed=False)
            else:
                self._die(code)

        self._call(send, on_reply)

    def _end(self, *, committed: bool) -> None:
        self._step += 1
        if committed:
            self.cluster.checks.on_commit_asked(self._producer)
        self._try_end(committed)

    def _try_end(self, committed: bool) -> None:
        fields = {
            "transactional_id": self.transactional_id,
            "producer": self._producer,
            "committed": committed,
            "bump_epoch": True,
        }
        self._call(
            lambda receive: self.cluster.ask(EndTxn, fields, receive), lambda reply: self._on_end(reply, committed)
        )

    def _on_end(self, reply: Any, committed: bool) -> None:
        code = reply if isinstance(reply, ErrorCode) else reply.error
        if code in AGAIN:
            self._later(self._try_end, committed)
        elif code is ErrorCode.NONE:
            self.cluster.checks.on_ended(self._producer, committed=committed)
            self.committed_count += committed
            self._begin(reply.producer)
        elif code in ABORTABLE and committed:
            self._end(committed=False)
        else:
            self._die(code)

    def _die(self, code: ErrorCode) -> None:
        self.cluster.note(f"{self.transactional_id} {self._producer} ends: {code.name}")
        self.is_alive = False
