"""A shard of transactions on a clock that tests move, with a log that acknowledges at once if not told otherwise."""

from __future__ import annotations

from collections import deque
from typing import Any

from klamm.errors import ErrorCode
from klamm.ledger_ids import LedgerId
from klamm.model import TopicPartition
from klamm_coordinator.settings import TransactionSettings
from klamm_coordinator.shard.events import TimePassed, WriteAppended, WriteFailed
from klamm_coordinator.timers import Now
from klamm_coordinator.transaction.ledger import Verdict
from klamm_coordinator.transaction.messages import (
    AddPartitions,
    DecideBatch,
    Effects,
    EndTxn,
    InitProducerId,
    MarkersWritten,
    Part,
    PrepareTxn,
    RegisterRun,
    Reply,
    SendMarkers,
    VerifyPartitions,
)
from klamm_coordinator.transaction.metadata import Producer, TransactionMetadata
from klamm_coordinator.transaction.producer_ids import ProducerIdStock
from klamm_coordinator.transaction.records import (
    ShardRecord,
    decode_transaction_record,
    encode_transaction_record,
)
from klamm_coordinator.transaction.shard import TransactionShard
from klamm_coordinator.write import Write

ID = "payments"
LEDGER = LedgerId("orders", "a-query")
TIMEOUT_MS = 60_000
WALL_START_MS = 1_700_000_000_000


def partitions(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("t", number) for number in numbers)


class TransactionDriver:
    """Every reply is checked to be the only one to its request, every invariant after every step."""

    def __init__(self, *, producer_ids: int = 1_000, **settings: int) -> None:
        self.settings = TransactionSettings(**settings)
        self.stock = ProducerIdStock()
        self.stock.add(range(1_000, 1_000 + producer_ids))
        self.now_ms = 0
        self.wall_offset_ms = WALL_START_MS
        self.replies: dict[int, Reply] = {}
        self.asked: set[int] = set()
        self.unsent: deque[Write[ShardRecord]] = deque()
        self.log: list[tuple[bytes, bytes | None]] = []
        """Records acknowledged, in order, as they are stored."""
        self.markers: list[SendMarkers] = []
        """Those that are not written yet."""
        self.notes: list[str] = []
        self.auto_ack = True
        self.auto_markers = True
        self._next_id = 0
        self.shard = TransactionShard(self.settings, self.stock)
        self._take(self.shard.start(self.now))

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.wall_offset_ms + self.now_ms)

    def value(self, transactional_id: str = ID) -> TransactionMetadata:
        return self.shard.values[transactional_id]

    # Time, the log and the partitions

    def step(self, event: Any) -> None:
        self._take(self.shard.step(event, self.now))
        self.settle()

    def settle(self) -> None:
        """What happens by itself."""
        while True:
            if self.auto_ack and self.unsent:
                self.ack()
            elif self.auto_markers and self.markers:
                self.write_markers()
            else:
                return

    def ack(self) -> None:
        """The log has the oldest write."""
        write = self.unsent.popleft()
        self.log.extend(encode_transaction_record(record) for record in write.records)
        self._take(self.shard.step(WriteAppended(write_id=write.write_id), self.now))

    def nack(self, error: ErrorCode) -> None:
        """The log refuses the oldest write."""
        write = self.unsent.popleft()
        self._take(self.shard.step(WriteFailed(write_id=write.write_id, error=error), self.now))

    def write_markers(self) -> SendMarkers:
        """All partitions of the transaction that ended first have its marker."""
        order = self.markers.pop(0)
        self._take(
            self.shard.step(MarkersWritten(transactional_id=order.transactional_id, marker=order.marker), self.now)
        )
        return order

    def advance(self, duration_ms: int) -> None:
        """Time passes; every deadline on the way is met on time."""
        end_ms = self.now_ms + duration_ms
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.step(TimePassed())
        self.now_ms = end_ms

    def crash(self) -> None:
        """The process dies and another one loads the shard: what was not acknowledged is lost, so are the requests."""
        self.unsent.clear()
        self.markers.clear()
        former, former_ledgers = self.shard.values, self.shard.ledgers.values
        self.shard = TransactionShard(self.settings, self.stock)
        for key, value in self.log:
            record = decode_transaction_record(key, value)
            assert record is not None
            self.shard.replay(record)
        assert self.shard.values == former
        assert self.shard.ledgers.values == former_ledgers
        self.asked = set(self.replies)
        self._take(self.shard.start(self.now))
        self.settle()

    def _take(self, effects: Effects) -> None:
        for reply_id, reply in effects.replies:
            assert reply_id in self.asked, f"an answer to nothing: {reply_id} {reply}"
            assert reply_id not in self.replies, f"a second answer: {reply_id} {reply}"
            self.replies[reply_id] = reply
        self.unsent.extend(effects.writes)
        self.markers.extend(effects.markers)
        self.notes.extend(effects.notes)
        self.shard.check_invariants()

    # Requests: `ask_` gives the id of the reply, the others the reply

    def ask(self, request_type: Any, **fields: Any) -> int:
        self._next_id += 1
        self.asked.add(self._next_id)
        self.step(request_type(reply_id=self._next_id, **fields))
        return self._next_id

    def ask_init(
        self, expected: Producer | None = None, transactional_id: str = ID, timeout_ms: int = TIMEOUT_MS
    ) -> int:
        return self.ask(InitProducerId, transactional_id=transactional_id, timeout_ms=timeout_ms, expected=expected)

    def ask_add(self, producer: Producer, *numbers: int, transactional_id: str = ID) -> int:
        return self.ask(
            AddPartitions, transactional_id=transactional_id, producer=producer, partitions=partitions(*numbers)
        )

    def ask_end(
        self, producer: Producer, *, committed: bool, bump_epoch: bool = True, transactional_id: str = ID
    ) -> int:
        return self.ask(
            EndTxn,
            transactional_id=transactional_id,
            producer=producer,
            committed=committed,
            bump_epoch=bump_epoch,
        )

    def ask_register(self, run_id: str, batch_id: int) -> int:
        return self.ask(RegisterRun, ledger=LEDGER, run_id=run_id, batch_id=batch_id)

    def ask_prepare(self, producer: Producer, run_id: str, batch_id: int, *, transactional_id: str) -> int:
        return self.ask(
            PrepareTxn, transactional_id=transactional_id, producer=producer, run_id=run_id, batch_id=batch_id
        )

    def ask_decide(self, run_id: str, batch_id: int, *, committed: bool, parts: tuple[Part, ...] = ()) -> int:
        return self.ask(DecideBatch, ledger=LEDGER, run_id=run_id, batch_id=batch_id, committed=committed, parts=parts)

    def register(self, run_id: str, batch_id: int) -> Any:
        return self.replies[self.ask_register(run_id, batch_id)]

    def prepare(self, producer: Producer, run_id: str, batch_id: int, *, transactional_id: str) -> Any:
        return self.replies[self.ask_prepare(producer, run_id, batch_id, transactional_id=transactional_id)]

    def decide(self, run_id: str, batch_id: int, *, committed: bool, parts: tuple[Part, ...] = ()) -> Any:
        return self.replies[self.ask_decide(run_id, batch_id, committed=committed, parts=parts)]

    def prepared_part(self, run_id: str, batch_id: int, partition: int, attempt: int = 0) -> Part:
        """A task that wrote something."""
        transactional_id = LEDGER.part(partition, attempt)
        producer = self.init(transactional_id=transactional_id).producer
        assert self.add(producer, partition, transactional_id=transactional_id) is ErrorCode.NONE
        reply = self.prepare(producer, run_id, batch_id, transactional_id=transactional_id)
        assert (reply.error, reply.verdict) == (ErrorCode.NONE, Verdict.UNDECIDED), reply
        return Part(transactional_id, producer)

    def init(self, expected: Producer | None = None, **fields: Any) -> Any:
        return self.replies[self.ask_init(expected, **fields)]

    def add(self, producer: Producer, *numbers: int, transactional_id: str = ID) -> ErrorCode:
        return self.replies[self.ask_add(producer, *numbers, transactional_id=transactional_id)].error

    def verify(self, producer: Producer, *numbers: int) -> Any:
        asked = self.ask(
            VerifyPartitions,
            transactional_id=ID,
            producer=producer,
            partitions=tuple(TopicPartition("t", number) for number in numbers),
        )
        return self.replies[asked]

    def end(self, producer: Producer, *, committed: bool, bump_epoch: bool = True, transactional_id: str = ID) -> Any:
        asked = self.ask_end(producer, committed=committed, bump_epoch=bump_epoch, transactional_id=transactional_id)
        return self.replies[asked]
