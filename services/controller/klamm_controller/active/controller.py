"""The controller's one queue: requests become records, records commit, replies are released.

    submit -> queue -> handle(image) -> records -> log ... committed -> reply

The controller keeps two images. Handlers see `appended`, which has all records that this leader has appended,
committed or not. So two requests in a row cannot both create a topic (KRaft's speculative replay). All other code sees
`committed`. A reply waits until all records that its handler saw have committed, even if the handler made no records.

A controller that is not active only replays. A controller that stops being active drops its uncommitted records from
`appended`. Its callers wait, because the next leader may still commit those records. The first entry of that leader's
term settles which records have committed. So the controller answers NOT_CONTROLLER only if the request has certainly
had no effect. Kafka leaves that open.

Invariant: `appended` is `committed` plus, while this controller is active, the entries that are in the log's hands.
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
    """Joins the queue, the log and the two images. Everything that changes them runs on the queue."""

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
        """Whether this node decides."""
        return self._log.is_leader and not self._stopped

    @property
    def term(self) -> int:
        """The log's term."""
        return self._log.term

    def start(
        self,
        *,
        on_claimed: Callable[[], None],
        on_resigned: Callable[[], None],
        on_sweep: Callable[[Sweep], None] | None = None,
    ) -> None:
        """Takes part in the log. `on_claimed` is called when this controller has become active and may append, and
        `on_resigned` when it is not active any more. `on_sweep` gets the changes that a decision leaves for later
        turns."""
        self._on_claimed = on_claimed
        self._on_resigned = on_resigned
        self._on_sweep = on_sweep
        self._log.start(self)

    def resign(self) -> None:
        """Decides nothing more, and lets go of those who wait for more."""
        self._stopped = True
        self._advanced.set()

    async def close(self) -> None:
        """Hands over, makes durable what was appended, and releases its replies."""
        await self._log.stop()
        self._give_up(ErrorCode.REQUEST_TIMED_OUT)

    async def confirm(self) -> MetadataImage:
        """Returns the image that was committed when this was called, or a later one. A majority confirms it, so the
        read is linearizable.

        Raises NotControllerError."""
        await self._log.confirm_leadership()
        return self._committed

    async def submit(
        self, name: str, handle: Callable[[MetadataImage], Decision[ReplyT]], *, urgent: bool = False
    ) -> ReplyT:
        """Runs `handle` on the queue; returns its reply when all it saw and made has committed.

        `urgent` goes before the ordinary ones. Cancelled before its turn, it is never run.
        Raises NotControllerError and QueueFullError when nothing was done, RequestTimedOutError when that is not
        known."""
        if not self.is_active:
            raise ErrorCode.NOT_CONTROLLER.exception()
        enqueue = self._queue.prepend if urgent else self._queue.append
        reply, committed = await enqueue(name, lambda: self._run(handle))
        await committed
        return reply

    async def submit_parts(
        self, name: str, parts: Iterable[Callable[[MetadataImage], Decision[ReplyT]]]
    ) -> list[ReplyT]:
        """Runs each of `parts` as an event of its own, one after the other; returns the replies when all has committed.

        Raises what `submit` does, but RequestTimedOutError for whatever goes wrong after the first part: that one may
        have happened."""
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
        """Carries a decision out. Only from the queue. Raises what MetadataLog.append does."""
        if decision.records:
            self.append(decision.records)
        if decision.sweep is not None:
            assert self._on_sweep is not None, f"nobody does the {decision.sweep.name}"
            self._on_sweep(decision.sweep)

    def append(self, records: Sequence[MetadataRecord]) -> None:
        """Appends records that no request waits for. Only from the queue. Raises what MetadataLog.append does."""
        entry = self._log.append(records)
        assert entry.base_index == self._appended.end_index, (entry.base_index, self._appended.end_index)
        report_unclean_elections(self._appended, records)
        report_gone_log_dirs(self._appended, records)
        self._appended = replay(self._appended, records, entry.end_index)
        self._in_flight.append(self._appended)

    def entries_after(self, index: int) -> list[MetadataBatch] | None:
        """Committed entries from `index` on; None when only a snapshot can tell what came before."""
        return self._tail.after(index)

    async def wait_active(self) -> None:
        """Returns when this controller is active, or has been stopped."""
        while not self.is_active and not self._stopped:
            await self._advanced.wait()

    async def wait_beyond(self, index: int) -> bool:
        """Returns when something is committed at `index` or later; False when nothing more will be."""
        while self._committed.end_index <= index and not self._stopped:
            await self._advanced.wait()
        return not self._stopped

    # As the log's listener

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
        # The snapshot says what is, not which of the requests before it brought it about.
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
        """Asserts that the appended image is the committed one plus the records in flight, and that the tail ends where
        these begin."""
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
    """Stands for callbacks before `start`."""
