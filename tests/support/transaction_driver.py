"""A shard of transactions on a clock that tests move, with a log that acknowledges at once unless a test clears
`auto_ack`."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

from klamm.errors import ErrorCode
from klamm.ledger_ids import LedgerId
from klamm.model import TopicPartition
from klamm_coordinator.ledger.ledger import Verdict
from klamm_coordinator.ledger.messages import DecideBatch, Part, RegisterRun
from klamm_coordinator.runtime.effects import ShardEffects
from klamm_coordinator.runtime.events import TimePassed, WriteAppended, WriteFailed
from klamm_coordinator.runtime.log_write import LogWrite
from klamm_coordinator.runtime.shard_runtime import ShardRuntime
from klamm_coordinator.runtime.timers import Now
from klamm_coordinator.transaction.messages import (
    AddPartitions,
    EndTxn,
    InitProducerId,
    MarkersWritten,
    PrepareTxn,
    SendMarkers,
    VerifyPartitions,
)
from klamm_coordinator.transaction.metadata import ProducerIdAndEpoch, TransactionMetadata
from klamm_coordinator.transaction.producer_ids import ProducerIdPool
from klamm_coordinator.transaction_shard.messages import Reply
from klamm_coordinator.transaction_shard.records import ShardRecord, decode_shard_record, encode_shard_record
from klamm_coordinator.transaction_shard.rules import TransactionRules
from klamm_coordinator.transaction_shard.settings import TransactionSettings
from klamm_server.runtime.byte_shares import ByteShares, unbounded

ID = "payments"
LEDGER = LedgerId("orders", "a-query")
TIMEOUT_MS = 60_000
FIRST_ID = 1_000
"""The first producer id that a driver gives out."""
WALL_START_MS = 1_700_000_000_000


def producer(epoch: int, producer_id: int = FIRST_ID) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(producer_id, epoch)


def partitions(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("t", number) for number in numbers)


class TransactionDriver:
    """Drives a shard of transactions. It checks that each request gets only one reply, and checks all invariants after
    each step."""

    def __init__(self, *, producer_ids: int = 1_000, shares: ByteShares | None = None, **settings: int) -> None:
        self.settings = TransactionSettings(**settings)
        self.shares = unbounded() if shares is None else shares
        self.user = "User:alice"
        """The user that sends the requests."""
        self.producer_ids = ProducerIdPool()
        self.producer_ids.add(range(FIRST_ID, FIRST_ID + producer_ids))
        self.now_ms = 0
        self.wall_offset_ms = WALL_START_MS
        self.replies: dict[int, Reply] = {}
        self.asked: set[int] = set()
        self.unsent: deque[LogWrite[ShardRecord]] = deque()
        self.log: list[tuple[bytes, bytes | None]] = []
        """The acknowledged records as they are stored, in order."""
        self.markers: list[SendMarkers] = []
        """The markers that are not written yet."""
        self.notes: list[str] = []
        self.auto_ack = True
        self.auto_markers = True
        self._next_id = 0
        self.shard = self._new_shard()
        self._take(self.shard.start(self.now))

    @property
    def rules(self) -> TransactionRules:
        return self.shard.rules

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.wall_offset_ms + self.now_ms)

    def value(self, transactional_id: str = ID) -> TransactionMetadata:
        return self.rules.ids.values[transactional_id]

    def _new_shard(self) -> ShardRuntime[TransactionRules]:
        return ShardRuntime(
            TransactionRules(self.settings, self.producer_ids, self.shares), self.settings, random.Random(1)
        )

    # Time, the log and the partitions

    def step(self, event: Any) -> None:
        self._take(self.shard.step(event, self.now))
        self.settle()

    def settle(self) -> None:
        """Acknowledges pending writes and writes pending markers, unless a test has switched that off."""
        while True:
            if self.auto_ack and self.unsent:
                self.ack()
            elif self.auto_markers and self.markers:
                self.write_markers()
            else:
                return

    def ack(self) -> None:
        """Acknowledges the oldest write, as if the log had appended it."""
        write = self.unsent.popleft()
        self.log.extend(encode_shard_record(record) for record in write.records)
        self._take(self.shard.step(WriteAppended(write_id=write.write_id), self.now))

    def nack(self, error: ErrorCode) -> None:
        """Fails the oldest write with `error`, as if the log had refused it."""
        write = self.unsent.popleft()
        self._take(self.shard.step(WriteFailed(write_id=write.write_id, error=error), self.now))

    def write_markers(self) -> SendMarkers:
        """Reports that all partitions of the transaction that ended first have its marker."""
        order = self.markers.pop(0)
        self._take(
            self.shard.step(MarkersWritten(transactional_id=order.transactional_id, marker=order.marker), self.now)
        )
        return order

    def advance(self, duration_ms: int) -> None:
        """Advances the clock. Every deadline on the way is met on time."""
        end_ms = self.now_ms + duration_ms
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.step(TimePassed())
        self.now_ms = end_ms

    def crash(self) -> None:
        """Ends the process and loads the shard in another one. Requests and writes that were not acknowledged are
        lost."""
        self.unsent.clear()
        self.markers.clear()
        former, former_ledgers = self.rules.ids.values, self.rules.ledgers.values
        self.rules.close()
        self.shard = self._new_shard()
        for key, value in self.log:
            record = decode_shard_record(key, value)
            assert record is not None
            self.rules.replay(record)
        assert self.rules.ids.values == former
        assert self.rules.ledgers.values == former_ledgers
        self.asked = set(self.replies)
        self._take(self.shard.start(self.now))
        self.settle()

    def _take(self, effects: ShardEffects[Any]) -> None:
        for reply_id, reply in effects.replies:
            assert reply_id in self.asked, f"an answer to nothing: {reply_id} {reply}"
            assert reply_id not in self.replies, f"a second answer: {reply_id} {reply}"
            self.replies[reply_id] = reply
        self.unsent.extend(effects.writes)
        self.markers.extend(effects.orders)
        self.notes.extend(effects.notes)
        self.shard.check_invariants()

    # Requests: `ask_...` returns the id of the reply, and the other methods return the reply

    def ask(self, request_type: Any, **fields: Any) -> int:
        self._next_id += 1
        self.asked.add(self._next_id)
        if request_type in (InitProducerId, RegisterRun):
            fields["user"] = self.user
        self.step(request_type(reply_id=self._next_id, **fields))
        return self._next_id

    def ask_init(
        self, expected: ProducerIdAndEpoch | None = None, transactional_id: str = ID, timeout_ms: int = TIMEOUT_MS
    ) -> int:
        return self.ask(InitProducerId, transactional_id=transactional_id, timeout_ms=timeout_ms, expected=expected)

    def ask_add(self, producer: ProducerIdAndEpoch, *numbers: int, transactional_id: str = ID) -> int:
        return self.ask(
            AddPartitions, transactional_id=transactional_id, producer=producer, partitions=partitions(*numbers)
        )

    def ask_end(
        self, producer: ProducerIdAndEpoch, *, committed: bool, bump_epoch: bool = True, transactional_id: str = ID
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

    def ask_prepare(self, producer: ProducerIdAndEpoch, run_id: str, batch_id: int, *, transactional_id: str) -> int:
        return self.ask(
            PrepareTxn, transactional_id=transactional_id, producer=producer, run_id=run_id, batch_id=batch_id
        )

    def ask_decide(self, run_id: str, batch_id: int, *, committed: bool, parts: tuple[Part, ...] = ()) -> int:
        return self.ask(DecideBatch, ledger=LEDGER, run_id=run_id, batch_id=batch_id, committed=committed, parts=parts)

    def register(self, run_id: str, batch_id: int) -> Any:
        return self.replies[self.ask_register(run_id, batch_id)]

    def prepare(self, producer: ProducerIdAndEpoch, run_id: str, batch_id: int, *, transactional_id: str) -> Any:
        return self.replies[self.ask_prepare(producer, run_id, batch_id, transactional_id=transactional_id)]

    def decide(self, run_id: str, batch_id: int, *, committed: bool, parts: tuple[Part, ...] = ()) -> Any:
        return self.replies[self.ask_decide(run_id, batch_id, committed=committed, parts=parts)]

    def prepared_part(self, run_id: str, batch_id: int, partition: int, attempt: int = 0) -> Part:
        """Returns the part of a task that has written to `partition` and prepared its transaction."""
        transactional_id = LEDGER.part(partition, attempt)
        producer = self.init(transactional_id=transactional_id).producer
        assert self.add(producer, partition, transactional_id=transactional_id) is ErrorCode.NONE
        reply = self.prepare(producer, run_id, batch_id, transactional_id=transactional_id)
        assert (reply.error, reply.verdict) == (ErrorCode.NONE, Verdict.UNDECIDED), reply
        return Part(transactional_id, producer)

    def init(self, expected: ProducerIdAndEpoch | None = None, **fields: Any) -> Any:
        return self.replies[self.ask_init(expected, **fields)]

    def add(self, producer: ProducerIdAndEpoch, *numbers: int, transactional_id: str = ID) -> ErrorCode:
        return self.replies[self.ask_add(producer, *numbers, transactional_id=transactional_id)].error

    def verify(self, producer: ProducerIdAndEpoch, *numbers: int) -> Any:
        asked = self.ask(
            VerifyPartitions,
            transactional_id=ID,
            producer=producer,
            partitions=tuple(TopicPartition("t", number) for number in numbers),
        )
        return self.replies[asked]

    def end(
        self, producer: ProducerIdAndEpoch, *, committed: bool, bump_epoch: bool = True, transactional_id: str = ID
    ) -> Any:
        asked = self.ask_end(producer, committed=committed, bump_epoch=bump_epoch, transactional_id=transactional_id)
        return self.replies[asked]
