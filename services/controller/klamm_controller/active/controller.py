"""The controller's queue: a request becomes records, and its reply is sent after the records have committed.

    submit -> queue -> handle(image) -> records -> log ... committed -> reply

The controller keeps two images. Handlers see `appended`, which has all records that this leader has appended,
committed or not. So two requests in a row cannot both create a topic (KRaft's speculative replay). All other code sees
`committed`. A reply waits until all records that its handler saw have committed, even if the handler made no records.

A controller that is not active only replays. A controller that stops being active drops its uncommitted records from
`appended`. Its callers wait, because the next leader may still commit those records. The first entry of that leader's
term settles which records have committed. So the controller answers NOT_CONTROLLER only if the request has certainly
had no effect. Kafka leaves that open.

Invariant: `appended` is `committed` plus, while this controller is active, the entries that it has appended to the log
but that have not committed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from klamm.errors import ErrorCode, KlammError
from klamm.wire.v1.metadata_pb2 import MetadataBatch, MetadataRecord
from klamm_controller.active.committed_tail import CommittedTail
from klamm_controller.active.unclean import report_gone_log_dirs, report_unclean_elections
from klamm_controller.log.port import MetadataLog
from klamm_controller.metadata.decision import Decision, ReplyT
from klamm_controller.metadata.sweep import Sweep
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from klamm_server.runtime.event_queue import EventQueue


class Controller:
    """Decides on requests, with one queue, the metadata log and two images. Everything that changes the images runs on
    the queue."""

    def __init__(
        self,
        *,
        log: MetadataLog,
        queue: EventQueue,
        image: MetadataImage,
        tail: CommittedTail,
    ) -> None:
        assert tail.end_index == image.end_index, (tail.end_index, image.end_index)
        self._log = log
        self._queue = queue
        self._appended = image
        self._committed = image
        self._in_flight: deque[MetadataImage] = deque()
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._tail = tail
        self._on_claimed: Callable[[], None] = _nothing
        self._on_resigned: Callable[[], None] = _nothing
        self._on_sweep: Callable[[Sweep], None] | None = None
        self._advanced = asyncio.Event()
        self._stopped = False

    @property
    def committed(self) -> MetadataImage:
        """The image of all committed records."""
        return self._committed

    @property
    def appended(self) -> MetadataImage:
        """The image of all appended records. It becomes the committed image unless this node loses the leadership."""
        return self._appended

    @property
    def is_active(self) -> bool:
        """True while this controller leads the quorum and has not been stopped."""
        return self._log.is_leader and not self._stopped

    @property
    def term(self) -> int:
        """The quorum's current term, as the log knows it."""
        return self._log.term

    def start(
        self,
        *,
        on_claimed: Callable[[], None],
        on_resigned: Callable[[], None],
        on_sweep: Callable[[Sweep], None] | None = None,
    ) -> None:
        """Starts the log with this controller as its listener.

        `on_claimed` is called when this controller has become active and may append, and `on_resigned` when it is no
        longer active. `on_sweep` receives the changes that a decision leaves for later turns of the queue."""
        self._on_claimed = on_claimed
        self._on_resigned = on_resigned
        self._on_sweep = on_sweep
        self._log.start(self)

    def resign(self) -> None:
        """Stops deciding, and wakes the callers that wait for this controller to become active or for more records to
        commit."""
        self._stopped = True
        self._advanced.set()

    async def close(self) -> None:
        """Hands the leadership over, makes the appended records durable, and then fails the replies that still wait,
        with REQUEST_TIMED_OUT."""
        await self._log.stop()
        self._give_up(ErrorCode.REQUEST_TIMED_OUT)

    async def confirm(self) -> MetadataImage:
        """Returns the image that was committed at the time of the call, or a later one. A majority confirms the
        leadership first, so the read is linearizable.

        Raises NotControllerError."""
        await self._log.confirm_leadership()
        return self._committed

    async def submit(
        self, name: str, handle: Callable[[MetadataImage], Decision[ReplyT]], *, urgent: bool = False
    ) -> ReplyT:
        """Runs `handle` on the queue. Returns its reply once all records that `handle` saw and made have committed.

        An `urgent` request runs before all ordinary ones. A request that is cancelled while it is queued is never run.
        Raises NotControllerError or QueueFullError if the request had no effect, and RequestTimedOutError if it may
        have had one."""
        if not self.is_active:
            raise ErrorCode.NOT_CONTROLLER.exception()
        enqueue = self._queue.prepend if urgent else self._queue.append
        reply, committed = await enqueue(name, lambda: self._run(handle))
        await committed
        return reply

    async def submit_parts(
        self, name: str, parts: Iterable[Callable[[MetadataImage], Decision[ReplyT]]]
    ) -> list[ReplyT]:
        """Runs each of `parts` as a separate event, one after the other. Returns the replies once all their records
        have committed.

        Raises the same errors as `submit`. After the first part, every failure becomes RequestTimedOutError, because
        the first part may have had an effect."""
        if not self.is_active:
            raise ErrorCode.NOT_CONTROLLER.exception()
        replies: list[ReplyT] = []
        commits: list[asyncio.Future[None]] = []
        try:
            for handle in parts:
                reply, committed = await self._queue.append(name, partial(self._run, handle))
                replies.append(reply)
                commits.append(committed)
            for committed in commits:
                await committed
        except KlammError as error:
            failed = [committed.done() and committed.exception() is not None for committed in commits]
            if all(failed):
                raise
            raise ErrorCode.REQUEST_TIMED_OUT.exception(f"{name} was only partly completed: {error}") from error
        finally:
            for committed in commits:
                committed.cancel()
        return replies

    def decide(self, decision: Decision[ReplyT]) -> None:
        """Appends the decision's records and schedules its sweep. Must be called on the queue. Raises the same errors
        as MetadataLog.append."""
        if decision.records:
            self.append(decision.records)
        if decision.sweep is not None:
            assert self._on_sweep is not None, f"nobody does the {decision.sweep.name}"
            self._on_sweep(decision.sweep)

    def append(self, records: Sequence[MetadataRecord]) -> None:
        """Appends records to the log and replays them into the appended image. Must be called on the queue. Raises the
        same errors as MetadataLog.append."""
        entry = self._log.append(records)
        assert entry.base_index == self._appended.end_index, (entry.base_index, self._appended.end_index)
        report_unclean_elections(self._appended, records)
        report_gone_log_dirs(self._appended, records)
        self._appended = replay(self._appended, records, entry.end_index)
        self._in_flight.append(self._appended)

    def entries_after(self, index: int) -> list[MetadataBatch] | None:
        """Returns the committed entries from `index` on, or None if the caller must load a snapshot first."""
        return self._tail.after(index)

    async def wait_active(self) -> None:
        """Waits until this controller is active or has been stopped."""
        while not self.is_active and not self._stopped:
            await self._advanced.wait()

    async def wait_beyond(self, index: int) -> bool:
        """Waits until a record at `index` or later has committed, and returns True. Returns False if the controller was
        stopped."""
        while self._committed.end_index <= index and not self._stopped:
            await self._advanced.wait()
        return not self._stopped

    # The methods of LogListener

    def on_committed(self, entries: Sequence[MetadataBatch]) -> None:
        end_index = entries[-1].end_index
        if self._in_flight:
            while self._in_flight and self._in_flight[0].end_index <= end_index:
                self._committed = self._in_flight.popleft()
        else:
            records = [record for entry in entries for record in entry.records]
            self._appended = self._committed = replay(self._committed, records, end_index)
        assert self._committed.end_index == end_index, (self._committed.end_index, end_index)
        self._tail.extend(entries)
        self._advance()

    def on_restored(self, image: MetadataImage) -> None:
        assert not self._in_flight, len(self._in_flight)
        self._appended = self._committed = image
        self._tail.restart(image.end_index)
        # The image of a snapshot does not tell which of the waiting requests took effect.
        self._give_up(ErrorCode.REQUEST_TIMED_OUT)
        self._advance()

    def on_new_term(self) -> None:
        self._give_up(ErrorCode.NOT_CONTROLLER)

    def on_snapshot_due(self) -> None:
        self._log.save_snapshot(self._committed)

    def on_claimed(self) -> None:
        assert self._appended is self._committed, (self._appended.end_index, self._committed.end_index)
        self._on_claimed()
        self._advance()

    def on_resigned(self) -> None:
        self._in_flight.clear()
        self._appended = self._committed
        self._on_resigned()

    def check_invariants(self) -> None:
        """Asserts that the appended image is the committed image plus the records in flight. Asserts that the committed
        tail ends at the committed image's end index."""
        images = [self._committed, *self._in_flight]
        indexes = [image.end_index for image in images]
        assert indexes == sorted(indexes), indexes
        assert images[-1] is self._appended, (indexes, self._appended.end_index)
        assert self._tail.end_index == self._committed.end_index, (self._tail.end_index, indexes)

    def _run(self, handle: Callable[[MetadataImage], Decision[ReplyT]]) -> tuple[ReplyT, asyncio.Future[None]]:
        if not self._log.is_leader:
            raise ErrorCode.NOT_CONTROLLER.exception()
        decision = handle(self._appended)
        self.decide(decision)
        return decision.reply, self._committed_at(self._appended.end_index)

    def _committed_at(self, end_index: int) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if end_index <= self._committed.end_index:
            future.set_result(None)
        else:
            self._waiters.append((end_index, future))
        return future

    def _advance(self) -> None:
        """Wakes the callers that wait for records that have committed now."""
        while self._waiters and self._waiters[0][0] <= self._committed.end_index:
            _, future = self._waiters.popleft()
            if not future.done():
                future.set_result(None)
        advanced, self._advanced = self._advanced, asyncio.Event()
        advanced.set()

    def _give_up(self, code: ErrorCode) -> None:
        """Fails all waiting callers, because their records may never commit."""
        while self._waiters:
            _, future = self._waiters.popleft()
            if not future.done():
                future.set_exception(code.exception())


def _nothing() -> None:
    """Does nothing. It is the callback until `start` sets the real ones."""
