"""One shard while this coordinator owns it: claims its log, loads it, serves it, lets it go.

The shell around the pure shard: requests become futures, writes go to the log, deadlines to the event loop's timer.
Everything runs on one loop and no step awaits, so the loop is the queue that owns the shard's state.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

from klamm.errors import EXCEPTIONS, ErrorCode, KlammError
from klamm.records import iter_headers
from klamm.retry import Backoff
from klamm_coordinator.effects import Effects, Reply
from klamm_coordinator.group.messages import Heartbeat
from klamm_coordinator.io.log_link import FencedError, LogLink
from klamm_coordinator.metrics import APPENDS_FAILED, LOAD_SECONDS
from klamm_coordinator.settings import GroupSettings
from klamm_coordinator.shard.events import Event, Request, TimePassed, WriteAppended, WriteFailed
from klamm_coordinator.shard.replayer import Replayer
from klamm_coordinator.shard.shard import Shard
from klamm_coordinator.timers import Now
from klamm_server.clock import Clock
from klamm_server.faults import fatal, watch

log = logging.getLogger(__name__)

LOAD_RETRY = Backoff(initial_ms=100, max_ms=5_000)
RECORDS_PER_LOAD_SLICE = 2_000
"""Between two slices others get their turn: a large shard must not cost the small ones their heartbeats."""

MakeRequest = Callable[[int], Request]
"""A request for the reply id that it is given."""


class ShardHost:
    """Made when the shard is assigned; `close` when it is not any more. Never opened twice."""

    def __init__(
        self,
        number: int,
        link: LogLink,
        *,
        settings: GroupSettings,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.number = number
        self._link = link
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._shard: Shard | None = None
        """None until it is loaded."""
        self._futures: dict[int, asyncio.Future[Any]] = {}
        self._next_reply_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._is_closed = False
        self._task = watch(asyncio.create_task(self._serve(), name=f"shard-{number}"))

    @property
    def shard(self) -> Shard:
        """For reading. Raises CoordinatorLoadInProgressError, or NotCoordinatorError."""
        if self._is_closed:
            raise EXCEPTIONS[ErrorCode.NOT_COORDINATOR]()
        if self._shard is None:
            raise EXCEPTIONS[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]()
        return self._shard

    @property
    def loaded_shard(self) -> Shard | None:
        """As `shard`; None while it is not served."""
        return None if self._is_closed else self._shard

    @property
    def is_loaded(self) -> bool:
        """Whether it serves."""
        return self.loaded_shard is not None

    async def ask(self, make_request: MakeRequest) -> Reply:
        """The answer, when there is one. Raises as `shard` does, also when the shard is let go meanwhile.

        Raises CoordinatorNotAvailableError when `coordinator.pending.writes.max` writes wait already; a heartbeat
        is taken even then, or a slow log would cost every member its session."""
        self._next_reply_id += 1
        reply_id = self._next_reply_id
        request = make_request(reply_id)
        is_full = self.shard.pending_write_count >= self._settings.pending_writes_max
        if is_full and not isinstance(request, Heartbeat):
            raise EXCEPTIONS[ErrorCode.COORDINATOR_NOT_AVAILABLE]("too many writes wait for the log")
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._futures[reply_id] = future
        self.step(request)
        return await future

    def step(self, event: Event) -> None:
        """Something happened. Does nothing when the shard is not loaded: it will learn from the log."""
        if self.is_loaded:
            self._run(lambda: self.shard.step(event, self._now()))

    async def close(self) -> None:
        """Lets the shard go: who waits is told to look for its new owner."""
        if self._is_closed:
            return
        self._let_go()
        self._task.cancel()
        await asyncio.wait({self._task})

    def _let_go(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        futures, self._futures = self._futures, {}
        for future in futures.values():
            if not future.done():
                future.set_exception(EXCEPTIONS[ErrorCode.NOT_COORDINATOR]())
        log.info("shard=%d let go", self.number)

    # Loading and serving

    async def _serve(self) -> None:
        try:
            shard = await self._load_until_it_works()
            self._shard = shard
            self._run(lambda: shard.start(self._now()))
            await self._link.run(self._on_decided)
        except FencedError as error:
            # The metadata image that says so is on its way.
            log.info("shard=%d fenced: %s", self.number, error)
            self._let_go()

    async def _load_until_it_works(self) -> Shard:
        failures = 0
        first_end: tuple[int, int] | None = None
        while True:
            try:
                first_end = first_end or await self._link.claim()
                return await self._load(*first_end)
            except FencedError:
                raise
            except KlammError as error:
                failures += 1
                log.error("shard=%d cannot be loaded, trying again: %s", self.number, error)
                await asyncio.sleep(LOAD_RETRY.delay_ms(failures, self._rng) / 1000)

    async def _load(self, start_offset: int, end_offset: int) -> Shard:
        started_ms = self._clock.monotonic_ms()
        shard = Shard(self._settings, self._rng)
        replayer = Replayer(shard.state)
        slice_count = 0
        async for records in self._link.load(start_offset, end_offset):
            for position, header in iter_headers(records):
                replayer.replay_batch(records, position, header)
                slice_count += header.record_count
                if slice_count >= RECORDS_PER_LOAD_SLICE:
                    slice_count = 0
                    await asyncio.sleep(0)
        took_ms = self._clock.monotonic_ms() - started_ms
        LOAD_SECONDS.observe(took_ms / 1000)
        log.info(
            "shard=%d loaded end_offset=%d groups=%d offsets=%d skipped=%d took_ms=%d",
            self.number,
            end_offset,
            len(shard.state.groups),
            shard.state.offsets.count(),
            replayer.skipped_count,
            took_ms,
        )
        return shard

    def _on_decided(self, write_id: int, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            self.step(WriteAppended(write_id=write_id))
        else:
            APPENDS_FAILED.inc()
            self.step(WriteFailed(write_id=write_id, error=code))

    # Steps

    def _run(self, step: Callable[[], Effects]) -> None:
        try:
            effects = step()
        except Exception as error:  # noqa: BLE001 - a core that fails half-way leaves state nobody can trust
            fatal(f"shard {self.number} failed", error)
        for reply_id, reply in effects.replies:
            future = self._futures.pop(reply_id)
            if not future.done():  # its client has gone away
                future.set_result(reply)
        for write in effects.writes:
            self._link.append(write)
        for note in effects.notes:
            log.info("shard=%d %s", self.number, note)
        self._arm()

    def _arm(self) -> None:
        """One timer, for the earliest deadline; heartbeats move deadlines back all the time, it then fires in vain."""
        deadline_ms = self.shard.next_deadline_ms()
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = max(0, deadline_ms - self._clock.monotonic_ms())
        self._timer_ms = deadline_ms
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.step(TimePassed())

    def _now(self) -> Now:
        return Now(self._clock.monotonic_ms(), self._clock.wall_ms())
