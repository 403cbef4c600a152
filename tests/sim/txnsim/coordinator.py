"""One owner of the shard: the shard in a shell like `ShardHost`, with its log link and its marker sender."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.runtime.effects import ShardEffects
from klamm_coordinator.runtime.events import TimePassed, WriteAppended
from klamm_coordinator.runtime.log_write import LogWrite
from klamm_coordinator.runtime.shard_runtime import ShardRuntime
from klamm_coordinator.runtime.timers import Now
from klamm_coordinator.transaction.messages import InitProducerId, InitReply, MarkersWritten, SendMarkers
from klamm_coordinator.transaction.producer_ids import ProducerIdPool
from klamm_coordinator.transaction_shard.records import ShardRecord, decode_shard_record, encode_shard_record
from klamm_coordinator.transaction_shard.rules import TransactionRules
from klamm_coordinator.transaction_shard.settings import TransactionSettings
from tests.sim.kit.world import MS
from tests.sim.txnsim.state_log import Entry

if TYPE_CHECKING:
    from tests.sim.txnsim.cluster import Cluster

RETRY_MS = 20
OnReply = Callable[[Any], None]


class Owner:
    """Claims, loads, serves, until it is killed or learns that it is fenced."""

    def __init__(self, cluster: Cluster, epoch: int) -> None:
        self.cluster = cluster
        self.epoch = epoch
        self.is_alive = True
        self.is_isolated = False
        self.shard: ShardRuntime[TransactionRules] | None = None
        self._stock = ProducerIdPool()
        self._on_reply: dict[int, tuple[Any, OnReply]] = {}
        self._next_reply_id = 0
        self._queue: deque[LogWrite[ShardRecord]] = deque()
        self._under_way: list[LogWrite[ShardRecord]] = []
        self._sequence = 1
        self._timer_ms = -1
        self._claim()

    @property
    def now(self) -> Now:
        now_ms = self.cluster.world.now_us // MS
        return Now(now_ms, now_ms)

    def kill(self) -> None:
        self.is_alive = False

    # Requests

    def ask(self, request_type: Any, fields: dict[str, Any], on_reply: OnReply) -> None:
        """Receives a request. An isolated owner never gets it."""
        if not self.is_alive or self.is_isolated:
            return
        if self.shard is None:
            self.cluster.network.send(on_reply, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return
        self._next_reply_id += 1
        request = request_type(reply_id=self._next_reply_id, **fields)
        self._on_reply[self._next_reply_id] = (request, on_reply)
        self._step(request)

    # The log

    def _claim(self) -> None:
        if self.is_alive and self.shard is None:
            self._send(self._on_claim)
            self.cluster.world.after(RETRY_MS * MS, self._claim)

    def _on_claim(self) -> None:
        entries = self.cluster.log.claim(self.epoch)
        self._send(self._load, entries)

    def _load(self, entries: list[Entry] | None) -> None:
        if not self.is_alive or self.shard is not None:
            return
        if entries is None:
            self.kill()
            return
        self._stock.add(self.cluster.next_producer_ids())
        options = self.cluster.options
        settings = TransactionSettings(
            abort_check_interval_ms=options.abort_check_ms,
            wait_max_ms=200,
            prepared_timeout_ms=options.prepared_timeout_ms,
        )
        rules = TransactionRules(settings, self._stock)
        for key, value in entries:
            record = decode_shard_record(key, value)
            assert record is not None
            rules.replay(record)
        self.shard = ShardRuntime(rules, settings, random.Random(self.epoch))
        self.cluster.note(f"owner {self.epoch} serves")
        self._take(self.shard.start(self.now))

    def _append(self) -> None:
        if self._queue and not self._under_way:
            while self._queue:
                self._under_way.append(self._queue.popleft())
            self._try_append(self._sequence)

    def _try_append(self, sequence: int) -> None:
        if not self.is_alive or sequence != self._sequence:
            return
        entries = [encode_shard_record(record) for write in self._under_way for record in write.records]
        self._send(self._reach_log, sequence, entries)
        self.cluster.world.after(RETRY_MS * MS, self._try_append, sequence)

    def _reach_log(self, sequence: int, entries: list[Entry]) -> None:
        code = self.cluster.log.append(self.epoch, sequence, entries)
        self._send(self._on_appended, sequence, code)

    def _on_appended(self, sequence: int, code: ErrorCode) -> None:
        if not self.is_alive or sequence != self._sequence:
            return
        if code is not ErrorCode.NONE:
            self.cluster.note(f"owner {self.epoch} is fenced")
            self.kill()
            return
        self._sequence += 1
        writes, self._under_way = self._under_way, []
        for write in writes:
            self._step(WriteAppended(write_id=write.write_id))
        self._append()

    # Markers

    def _tell(self, order: SendMarkers) -> None:
        remaining = set(order.partitions)
        for partition in sorted(order.partitions):
            self._try_marker(order, partition, remaining)

    def _try_marker(self, order: SendMarkers, partition: TopicPartition, remaining: set[TopicPartition]) -> None:
        if not self.is_alive or partition not in remaining:
            return
        holder = self.cluster.partitions[partition.partition]
        self._send(
            holder.on_marker, order, self.epoch, partial(self._send, self._on_marker, order, partition, remaining)
        )
        self.cluster.world.after(RETRY_MS * MS, self._try_marker, order, partition, remaining)

    def _on_marker(
        self, order: SendMarkers, partition: TopicPartition, remaining: set[TopicPartition], code: ErrorCode
    ) -> None:
        if not self.is_alive or partition not in remaining:
            return
        if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            self.kill()
            return
        assert code in (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH), code
        remaining.discard(partition)
        if not remaining:
            self._step(MarkersWritten(transactional_id=order.transactional_id, marker=order.marker))

    # Steps

    def _step(self, event: Any) -> None:
        assert self.shard is not None
        self._take(self.shard.step(event, self.now))

    def _take(self, effects: ShardEffects[ShardRecord]) -> None:
        assert self.shard is not None
        self.shard.check_invariants()
        for reply_id, reply in effects.replies:
            request, on_reply = self._on_reply.pop(reply_id)
            if isinstance(request, InitProducerId) and reply.error is ErrorCode.NONE:
                assert isinstance(reply, InitReply)
                self.cluster.checks.on_identity(request, reply.producer)
            if not self.is_isolated:
                self.cluster.network.send(on_reply, reply)
        self._queue.extend(effects.writes)
        self._append()
        for order in effects.orders:
            self._tell(order)
        self._arm()

    def _arm(self) -> None:
        assert self.shard is not None
        deadline_ms = self.shard.next_deadline_ms()
        if deadline_ms is not None and (self._timer_ms < 0 or deadline_ms < self._timer_ms):
            self._timer_ms = deadline_ms
            self.cluster.world.after(max(0, deadline_ms - self.now.monotonic_ms) * MS, self._on_timer, deadline_ms)

    def _on_timer(self, deadline_ms: int) -> None:
        if self.is_alive and deadline_ms == self._timer_ms:
            self._timer_ms = -1
            self._step(TimePassed())

    def _send(self, deliver: Callable[..., None], *args: Any) -> None:
        if not self.is_isolated:
            self.cluster.network.send(deliver, *args)
