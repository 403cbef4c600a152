"""Records waiting to be sent: a queue of batches per partition, bounded by buffer.memory.

Pure and single-threaded: the caller holds the producer's lock and says what time it is (monotonic milliseconds).

A signal handler or a destructor may run between any two instructions, use the accumulator itself, and let the loop use
it. It may also raise an exception, such as KeyboardInterrupt. So what must not get lost changes in single steps: a
record is appended to a list, a batch to a queue. All other state can be computed from the queues. A change that was
interrupted computes it again (`_Change`).

The walk of a batch:

    open --full, lingered or flushed--> closed --drain--> in flight --complete--> settled
                                           ^                  |------fail-------> settled
                                           '-----retry, split-'
    closed or in flight --expire (delivery.timeout.ms)--> settled

Order per partition holds under retry because a partition has at most one request in flight (which may carry
several of its batches), and batches that come back go to the front of its queue.

Invariants (`check_invariants`): only the last batch of a queue is open; a queue is active exactly while it has
batches or a request in flight; free memory plus what all unsettled batches hold is buffer.memory.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Final

from klamm.core import core
from klamm.errors import ClosedError, DeliveryTimeoutError
from klamm.model import NO_LEADER_EPOCH, TopicPartition
from klamm.ordered_set import OrderedSet
from klamm.partitioner import BuiltInPartitioner, PartitionInfo
from klamm.producer.batch import Batch
from klamm.producer.config import ProducerConfig
from klamm.producer.result import BatchResult, DeliveryCallback
from klamm.producer.user_calls import UserCalls
from klamm.records import HEADER_SIZE_BYTES, PackedRecords, RawRecord

NEVER_MS = math.inf

_STEP_BYTES: Final = 16_384
"""An open batch reserves memory in steps of at least this size."""

LeaderOf = Callable[[TopicPartition], int | None]
"""The id of the partition's leader, or None while it is not known."""


class _QueueFields:
    """The attributes of a PartitionQueue."""

    __slots__ = (
        "awaits_leader",
        "batches",
        "in_flight",
        "leader_epoch",
        "one_at_a_time",
        "open",
        "retry_at_ms",
        "tp",
    )


class _TopicFields:
    """The attributes of TopicQueues."""

    __slots__ = ("_partitioner", "_queue_of", "infos", "name", "queues")


if core is not None and not TYPE_CHECKING:
    _QueueFields, _TopicFields = core.QueueFields, core.TopicFields


class PartitionQueue(_QueueFields):
    """The batches of one partition, oldest first."""

    __slots__ = ()

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.batches: deque[Batch] = deque()
        self.open: Batch | None = None
        """The last of `batches` while it takes records."""
        self.in_flight: list[Batch] = []
        self.retry_at_ms = 0
        """The earliest time of the next request (backoff)."""
        self.leader_epoch = NO_LEADER_EPOCH
        """The leader epoch of the last request."""
        self.awaits_leader = False
        """True after the leader failed. The backoff ends when the metadata name another leader."""
        self.one_at_a_time = False
        """True after a request with several batches was too large. Each request then has one batch, to find the one
        that is too large."""


class TopicQueues(_TopicFields):
    """The queues of one topic's partitions, and the partitioner that selects one."""

    __slots__ = ()

    def __init__(
        self,
        name: str,
        partitioner: BuiltInPartitioner,
        queue_of: Callable[[TopicPartition], PartitionQueue] = PartitionQueue,
    ) -> None:
        self.name = name
        self.queues: list[PartitionQueue] = []
        self.infos: Sequence[PartitionInfo] = ()
        """The partitions as the user's partitioner sees them. Empty if the producer has none."""
        self._partitioner = partitioner
        self._queue_of = queue_of

    def update(self, partition_count: int, preferred: Sequence[int]) -> None:
        """Applies a change of the topic's partitions or of their live leaders. A topic has fewer partitions if it was
        deleted and created again."""
        del self.queues[partition_count:]
        for number in range(len(self.queues), partition_count):
            self.queues.append(self._queue_of(TopicPartition(self.name, number)))
        self._partitioner.update(self.queues, preferred)

    def queue_for(self, partition: int | None, key: bytes | None, size_bytes: int) -> PartitionQueue | None:
        """Returns the queue of `partition`, or of the one that the partitioner selects. Returns None if the partition
        does not exist."""
        if partition is None:
            partition = self._partitioner.choose(key, size_bytes)
        queues = self.queues
        return queues[partition] if 0 <= partition < len(queues) else None


@dataclass(slots=True, kw_only=True)
class PendingRequest:
    """The batches in one request to one broker."""

    node_id: int
    size_bytes: int = 0
    parts: list[tuple[PartitionQueue, list[Batch]]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Drained:
    """The requests to send now, and the time of the next check."""

    requests: list[PendingRequest]
    leaderless: set[str]
    """Topics with due batches whose partition has no known leader."""
    next_due_ms: float
    """The time at which the next batch becomes due or expires, or NEVER_MS."""


class Accumulator:
    """The records of one producer that wait to be sent. The module's docstring has the rules.

    `on_due` is called when a batch becomes due earlier than the last drain expected."""

    def __init__(self, config: ProducerConfig, on_due: Callable[[], object], calls: UserCalls) -> None:
        self._calls = calls
        self._batch_bytes = min(config.batch_size, config.max_request_size)
        self._batch_bytes_of: dict[str, int] = {}
        """The largest batches of topics that refused larger ones."""
        self._linger_ms = config.linger_ms
        self._request_bytes_max = config.max_request_size
        self._delivery_timeout_ms = config.delivery_timeout_ms
        self._on_due = on_due
        self._next_due_ms: float = NEVER_MS
        self._next_expiry_ms: float = NEVER_MS
        self._active: dict[PartitionQueue, None] = {}
        self._closed = False
        self.buffer_bytes = config.buffer_memory
        self.available_bytes = config.buffer_memory
        self.waiters: OrderedSet[object] = OrderedSet()
        """The `send` calls that wait for memory. While there are any, every batch is due."""
        self.is_changing = False
        """True during a change."""
        self.change_count = 0

    # Filling

    def queue_of(self, tp: TopicPartition) -> PartitionQueue:
        """Returns the queue of a partition. Reuses an active queue, so that the order of records is kept.

        An active queue is left over if the topic disappears from the metadata and comes back."""
        return next((queue for queue in list(self._active) if queue.tp == tp), None) or PartitionQueue(tp)

    def append(
        self, queue: PartitionQueue, record: RawRecord, size_bytes: int, on_delivery: DeliveryCallback | None
    ) -> tuple[BatchResult, int] | None:
        """Appends a record to the open batch. Returns the batch's result and the record's index, or None if a new batch
        is needed (`open_batch`)."""
        batch = queue.open
        if batch is None:
            return None
        total_bytes = batch.size_bytes + size_bytes
        if total_bytes > batch.reserved_bytes and not self.grow(queue, batch, total_bytes):
            return None
        batch.size_bytes = total_bytes
        appended = batch.appended
        if isinstance(appended, list):
            index = len(appended)
            appended.append(record)
            if queue.open is not batch or appended[index] is not record:
                return self._interrupted_append(batch, batch.index_of(record), on_delivery)
        else:
            index = appended.append(record)
            if queue.open is not batch:
                return self._interrupted_append(batch, index, on_delivery)
        if on_delivery is not None:
            batch.callbacks.append((index, on_delivery))
        if total_bytes + size_bytes > batch.limit_bytes:
            self.close_full(queue, batch)
        return batch.result, index

    def close_full(self, queue: PartitionQueue, batch: Batch) -> None:
        """Closes the open batch, because another record like its last one would not fit. It is due at once: a sticky
        partitioner selects another partition now."""
        with _Change(self, queue):
            if queue.open is not batch:
                return
            self._close_batch(queue)
            if not queue.in_flight:
                self._due_at(0)

    def _interrupted_append(
        self, batch: Batch, index: int, on_delivery: DeliveryCallback | None
    ) -> tuple[BatchResult, int] | None:
        """Ends an append during which the accumulator was used otherwise. Returns None if the batch was closed before
        it got the record, so that `index` is -1."""
        if index < 0:
            return None
        if on_delivery is not None:
            callback = on_delivery
            # The batch may be settled already, and then looks at its callbacks no more.
            result = batch.result
            result.add_done_callback(lambda: result.deliver(index, result.outcome_of(index), callback))
        return batch.result, index

    def open_batch(self, queue: PartitionQueue, size_bytes: int, now_ms: int) -> bool:
        """Opens a new batch with room for a record of that size. Returns False if there is no memory for it.

        Raises ClosedError if the producer is closed."""
        if self._closed:
            raise ClosedError("the producer is closed")
        with _Change(self, queue):
            self._close_batch(queue)
            batch = Batch(queue.tp, now_ms, HEADER_SIZE_BYTES + size_bytes, self._calls)
            batch.limit_bytes = max(batch.reserved_bytes, self._batch_bytes_of.get(queue.tp.topic, self._batch_bytes))
            queue.open = self._add_batch(queue, batch)
            if queue.open is None:
                return False
            if not queue.in_flight:
                self._due_at(0 if len(queue.batches) > 1 else now_ms + self._linger_ms)
            return True

    def append_packed(self, queue: PartitionQueue, records: PackedRecords, now_ms: int) -> BatchResult | None:
        """Adds packed records as a batch that is due at once. Returns its result, or None if there is no memory for it.

        Raises ClosedError if the producer is closed."""
        if self._closed:
            raise ClosedError("the producer is closed")
        size_bytes = HEADER_SIZE_BYTES + len(records.data)
        batch = Batch(queue.tp, now_ms, size_bytes, self._calls)
        batch.records, batch.size_bytes = records, size_bytes
        batch.result = BatchResult(queue.tp, records, self._calls)
        with _Change(self, queue):
            self._close_batch(queue)
            if self._add_batch(queue, batch) is None:
                return None
            if not queue.in_flight:
                self._due_at(0)
            return batch.result

    def flush(self) -> list[BatchResult]:
        """Makes all batches due. Returns the results of the batches that are not settled yet."""
        results = {}
        with _Change(self):
            for queue in list(self._active):
                self._close_batch(queue)
                batches = (*queue.in_flight, *queue.batches)
                results.update(dict.fromkeys(batch.result for batch in batches if batch.records))
            self._due_at(0)
        return list(results)

    def close(self) -> None:
        """Refuses further records and makes all batches due."""
        self._closed = True
        self.flush()

    @property
    def is_empty(self) -> bool:
        """True if no batch waits and none is in flight."""
        return not self._active

    def unacknowledged_count(self) -> int:
        """Returns the number of records that wait or are in flight."""
        batches = [batch for queue in list(self._active) for batch in (*queue.in_flight, *queue.batches)]
        return sum(len(batch.records) for batch in batches if not batch.is_settled)

    # Sending

    def drain(self, leader_of: LeaderOf, in_flight: Mapping[int, int], limit: int, now_ms: int) -> Drained:
        """Returns requests with the due batches, the oldest queues first. Only brokers with fewer than `limit` requests
        in flight get one."""
        requests: dict[int, PendingRequest] = {}
        drained = Drained(requests=[], leaderless=set(), next_due_ms=self._next_expiry_ms)
        with _Change(self):
            for queue in list(self._active):
                if queue.in_flight or not queue.batches:
                    continue
                due_ms = self._due_ms(queue)
                if due_ms > now_ms:
                    drained.next_due_ms = min(drained.next_due_ms, due_ms)
                    continue
                leader = leader_of(queue.tp)
                if leader is None:
                    drained.leaderless.add(queue.tp.topic)
                elif in_flight.get(leader, 0) < limit:
                    request = requests.setdefault(leader, PendingRequest(node_id=leader))
                    self._fill(request, queue, now_ms)
        drained.requests = [request for request in requests.values() if request.parts]
        self._next_due_ms = drained.next_due_ms
        return drained

    def expire(self, now_ms: int) -> list[Batch]:
        """Returns the batches whose delivery.timeout.ms is over. The caller settles them.

        Waiting batches are removed. Batches in flight are marked, and stay until their request ends."""
        if now_ms < self._next_expiry_ms:
            return []
        expired = []
        oldest_ms = now_ms
        with _Change(self):
            for queue in list(self._active):
                for batch in queue.in_flight:
                    if not batch.is_expired and batch.created_ms + self._delivery_timeout_ms <= now_ms:
                        batch.is_expired = True
                        expired.append(batch)
                while queue.batches and queue.batches[0].created_ms + self._delivery_timeout_ms <= now_ms:
                    batch = self._take_first(queue)
                    self._release(batch)
                    if batch.records:
                        expired.append(batch)
                waiting = [*queue.in_flight, *queue.batches]
                oldest_ms = min([oldest_ms, *(batch.created_ms for batch in waiting if not batch.is_expired)])
                self._drop_if_idle(queue)
            self._next_expiry_ms = oldest_ms + self._delivery_timeout_ms if self._active else NEVER_MS
        return expired

    def complete(self, queue: PartitionQueue) -> list[Batch]:
        """Ends the partition's request for good. Returns its batches, including those that have expired."""
        with _Change(self):
            batches = queue.in_flight
            queue.in_flight = []
            queue.one_at_a_time = False
            for batch in batches:
                self._release(batch)
            self._drop_if_idle(queue)
        return batches

    def retry(
        self,
        queue: PartitionQueue,
        error: Exception,
        *,
        retry_at_ms: int,
        retries_max: int,
        awaits_leader: bool = False,
    ) -> list[Batch]:
        """Puts the batches of the partition's request back, to be sent again. They wait until `retry_at_ms` or, with
        `awaits_leader`, until `end_backoff`.

        Returns the batches that have used up their retries. The caller settles them."""
        batches = queue.in_flight
        exhausted = [batch for batch in batches if batch.attempts > retries_max]
        with _Change(self):
            for batch in exhausted:
                self._release(batch)
            again = [batch for batch in batches if batch.attempts <= retries_max]
            for batch in again:
                batch.last_error = error
            queue.retry_at_ms, queue.awaits_leader = retry_at_ms, awaits_leader
            self._put_back(queue, again)
        return exhausted

    def end_backoff(self, has_leader: Callable[[PartitionQueue], bool]) -> None:
        """Makes batches due that wait for a new leader, if their partition has one now (KIP-951)."""
        for queue in list(self._active):
            if queue.awaits_leader and has_leader(queue):
                queue.retry_at_ms, queue.awaits_leader = 0, False

    def topics_awaiting_leader(self) -> set[str]:
        """Returns the topics of partitions whose leader failed and that wait for another leader."""
        return {queue.tp.topic for queue in list(self._active) if queue.awaits_leader}

    def split(self, queue: PartitionQueue) -> bool:
        """Splits the partition's request, which was too large. Several batches are sent one by one. A single batch is
        sent in halves.

        Returns False if the request has only a single record. The caller then calls `complete`."""
        with _Change(self):
            batches = queue.in_flight
            if len(batches) > 1:
                queue.one_at_a_time = True
                self._put_back(queue, batches)
                return True
            if len(batches[0].records) == 1:
                return False
            halves = [] if batches[0].is_expired else batches[0].halves()
            self._note_limit(batches[0])
            self._release(batches[0])
            self.available_bytes -= sum(batch.reserved_bytes for batch in halves)
            self._put_back(queue, halves)
            return True

    def abort(self) -> list[Batch]:
        """Removes and returns every waiting batch. The caller settles them."""
        aborted = []
        with _Change(self):
            for queue in list(self._active):
                while queue.batches:
                    batch = self._take_first(queue)
                    self._release(batch)
                    if batch.records:
                        aborted.append(batch)
                self._drop_if_idle(queue)
        return aborted

    def queues_in_flight(self) -> list[PartitionQueue]:
        """Returns the queues of the partitions with a request in flight."""
        return [queue for queue in list(self._active) if queue.in_flight]

    def delivery_timeout(self, batch: Batch) -> DeliveryTimeoutError:
        """Returns the error of an expired batch."""
        if batch.attempts:
            story = f"{batch.attempts} attempt(s)" + (f", the last one: {batch.last_error}" if batch.last_error else "")
        else:
            story = "never sent: the partition has no leader, or its broker answers no earlier request"
        return DeliveryTimeoutError(
            f"{len(batch.records)} record(s) of {batch.tp} were not acknowledged within"
            f" delivery.timeout.ms={self._delivery_timeout_ms} ({story})"
        )

    def check_invariants(self) -> None:
        """Raises AssertionError if an invariant of the module's docstring does not hold."""
        held_bytes = 0
        for queue in self._active:
            assert queue.batches or queue.in_flight, queue.tp
            assert queue.open is None or queue.open is queue.batches[-1], queue.tp
            held_bytes += sum(batch.reserved_bytes for batch in (*queue.in_flight, *queue.batches))
        assert self.available_bytes + held_bytes == self.buffer_bytes, (self.available_bytes, held_bytes)

    def repair(self, queue: PartitionQueue | None = None) -> None:
        """Computes from the batches what follows from them, after changes that were interrupted. `queue` is the queue
        that was being changed, which may be missing among the active ones."""
        if queue is not None:
            self._active[queue] = None
        held_bytes = 0
        oldest_ms = NEVER_MS
        for active_queue in list(self._active):
            if active_queue.open is not None and (
                not active_queue.batches or active_queue.batches[-1] is not active_queue.open
            ):
                active_queue.open = None
            for batch in list(active_queue.batches):
                if not batch.records and batch is not active_queue.open:
                    active_queue.batches.remove(batch)
            self._drop_if_idle(active_queue)
            for batch in (*active_queue.in_flight, *active_queue.batches):
                held_bytes += batch.reserved_bytes
                oldest_ms = min(oldest_ms, batch.created_ms)
        self.available_bytes = self.buffer_bytes - held_bytes
        self._next_expiry_ms = oldest_ms + self._delivery_timeout_ms

    def wake(self) -> None:
        """Makes sure that the batches are looked at, because a change was interrupted before it could say that one is
        due."""
        self._next_due_ms = NEVER_MS
        self._due_at(0)

    def _add_batch(self, queue: PartitionQueue, batch: Batch) -> Batch | None:
        """Adds a batch to the queue and returns it. Returns None if there is no memory for it; all waiting batches are
        then due, so that memory becomes free."""
        if batch.reserved_bytes > self.available_bytes:
            self._due_at(0)
            return None
        self.available_bytes -= batch.reserved_bytes
        self._active[queue] = None
        queue.batches.append(batch)
        self._next_expiry_ms = min(self._next_expiry_ms, batch.created_ms + self._delivery_timeout_ms)
        return batch

    def grow(self, queue: PartitionQueue, batch: Batch, total_bytes: int) -> bool:
        """Reserves more memory for an open batch. Returns False if the batch may not become that large, or if there is
        no memory."""
        with _Change(self, queue):
            missing_bytes = total_bytes - batch.reserved_bytes
            spare_bytes = min(batch.limit_bytes - batch.reserved_bytes, self.available_bytes)
            if missing_bytes > spare_bytes or queue.open is not batch:
                return False
            step_bytes = min(max(missing_bytes, _STEP_BYTES), spare_bytes)
            self.available_bytes -= step_bytes
            batch.reserved_bytes += step_bytes
            return True

    def _note_limit(self, refused: Batch) -> None:
        """Notes that the topic refused a batch for its size. Its next batches have at most half of that size."""
        topic = refused.tp.topic
        known_bytes = self._batch_bytes_of.get(topic, self._batch_bytes)
        self._batch_bytes_of[topic] = min(known_bytes, refused.size_bytes // 2)

    def _due_ms(self, queue: PartitionQueue) -> int:
        first = queue.batches[0]
        if first is not queue.open:
            return queue.retry_at_ms
        return 0 if self.waiters else first.created_ms + self._linger_ms

    def _fill(self, request: PendingRequest, queue: PartitionQueue, now_ms: int) -> None:
        """Moves the queue's due batches into the request while there is room. The first batch of a request always
        fits.
        """
        taken = queue.in_flight
        while queue.batches:
            batch = queue.batches[0]
            if request.size_bytes and request.size_bytes + batch.size_bytes > self._request_bytes_max:
                break
            if taken and (queue.one_at_a_time or self._due_ms(queue) > now_ms):
                break
            self._take_first(queue)
            if not batch.records:
                # An interrupt came before its first record.
                self._release(batch)
                continue
            batch.attempts += 1
            request.size_bytes += batch.size_bytes
            taken.append(batch)
        if taken:
            queue.awaits_leader = False
            request.parts.append((queue, taken))
            # The next drain begins with the other queues.
            del self._active[queue]
            self._active[queue] = None
        else:
            self._drop_if_idle(queue)

    def _put_back(self, queue: PartitionQueue, batches: Sequence[Batch]) -> None:
        queue.in_flight = []
        for batch in reversed(batches):
            if batch.is_expired:
                self._release(batch)
            else:
                queue.batches.appendleft(batch)
        self._drop_if_idle(queue)

    def _close_batch(self, queue: PartitionQueue) -> None:
        """Closes the open batch, or removes it if an interrupt came before its first record."""
        batch = queue.open
        if batch is not None:
            self._shut(queue, batch)
            if not batch.records:
                queue.batches.remove(batch)
                self._release(batch)
                self._drop_if_idle(queue)

    def _shut(self, queue: PartitionQueue, batch: Batch) -> None:
        """Ends the appending to a batch. Its size is now known, so the rest of its reserved memory becomes free."""
        if batch is queue.open:
            queue.open = None
        batch.close()
        self.available_bytes += batch.reserved_bytes - batch.size_bytes
        batch.reserved_bytes = batch.size_bytes

    def _take_first(self, queue: PartitionQueue) -> Batch:
        batch = queue.batches.popleft()
        self._shut(queue, batch)
        return batch

    def _release(self, batch: Batch) -> None:
        self.available_bytes += batch.reserved_bytes

    def _drop_if_idle(self, queue: PartitionQueue) -> None:
        if not queue.batches and not queue.in_flight:
            self._active.pop(queue, None)

    def _due_at(self, due_ms: int) -> None:
        if due_ms < self._next_due_ms:
            self._on_due()
            self._next_due_ms = due_ms


class _Change:
    """A change of the accumulator, which repairs it if the change was interrupted."""

    __slots__ = ("_accumulator", "_number", "_queue")

    def __init__(self, accumulator: Accumulator, queue: PartitionQueue | None = None) -> None:
        self._accumulator = accumulator
        self._queue = queue

    def __enter__(self) -> None:
        accumulator = self._accumulator
        if accumulator.is_changing:
            # This change interrupts another one. Or another one was interrupted at its very beginning or end.
            accumulator.repair()
        accumulator.is_changing = True
        accumulator.change_count += 1
        self._number = accumulator.change_count

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        accumulator = self._accumulator
        if kind is not None or self._number != accumulator.change_count:
            accumulator.repair(self._queue)
            accumulator.wake()
        accumulator.is_changing = False
