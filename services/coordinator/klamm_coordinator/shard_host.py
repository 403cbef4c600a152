"""One shard while this coordinator owns it: claims its log, loads it, serves it, lets it go.

The shell around a pure shard, of groups or of transactions: requests become futures, writes go to the log, deadlines to
the event loop's timer. Everything runs on one loop and no step awaits: the loop is the queue that owns its state.
"""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from klamm.errors import EXCEPTIONS, ErrorCode, KlammError
from klamm.records import BatchHeader, Buffer, iter_headers
from klamm.retry import Backoff
from klamm_coordinator.io.log_link import FencedError, LogLink
from klamm_coordinator.metrics import APPENDS_FAILED, LOAD_SECONDS
from klamm_coordinator.shard.events import TimePassed, WriteAppended, WriteFailed
from klamm_coordinator.timers import Now
from klamm_coordinator.write import Write
from klamm_server.clock import Clock
from klamm_server.faults import fatal, watch

log = logging.getLogger(__name__)

LOAD_RETRY = Backoff(initial_ms=100, max_ms=5_000)
RECORDS_PER_LOAD_SLICE = 2_000
"""Between two slices others get their turn: a large shard must not cost the small ones their heartbeats."""

MakeRequest = Callable[[int], Any]
"""A request for the reply id that it is given."""


class Effects(Protocol):
    """What a step of any core asks for."""

    @property
    def replies(self) -> Sequence[tuple[int, Any]]: ...

    @property
    def writes(self) -> Sequence[Write[Any]]: ...

    @property
    def notes(self) -> Sequence[str]: ...


class Core(Protocol):
    """A pure shard."""

    @property
    def pending_write_count(self) -> int: ...

    def next_deadline_ms(self) -> int | None: ...

    def start(self, now: Now) -> Effects: ...

    def step(self, event: Any, now: Now) -> Effects: ...


CoreT = TypeVar("CoreT", bound=Core)


class Loading(Protocol[CoreT]):
    """A core that is being filled from its log."""

    core: CoreT

    def replay_batch(self, buffer: Buffer, position: int, header: BatchHeader) -> None: ...

    def story(self) -> str:
        """What was loaded, for the log."""


class ShardHost(ABC, Generic[CoreT]):
    """Made when the shard is assigned; `close` when it is not any more. Never opened twice.

    A kind of shard says how it begins to load, which requests pass although too much waits, and what is to be done
    about those effects that only its core has."""

    def __init__(
        self,
        number: int,
        link: LogLink,
        *,
        pending_writes_max: int,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.number = number
        self._name = f"{link.topic_name}-{number}"
        self._link = link
        self._pending_writes_max = pending_writes_max
        self._clock = clock
        self._rng = rng
        self._shard: CoreT | None = None
        """None until it is loaded."""
        self._futures: dict[int, asyncio.Future[Any]] = {}
        self._next_reply_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._is_closed = False
        self._task = watch(asyncio.create_task(self._serve(), name=f"shard-{self._name}"))

    @abstractmethod
    def _begin_load(self) -> Loading[CoreT]:
        """A new core, and what fills it."""

    def _passes_when_full(self, request: Any) -> bool:
        """Whether a request is taken although `pending_writes_max` writes wait."""
        return False

    def _carry_out(self, effects: Any) -> None:
        """Does what effects of this kind of shard ask for beyond replies, writes and notes."""

    @property
    def shard(self) -> CoreT:
        """For reading. Raises CoordinatorLoadInProgressError, or NotCoordinatorError."""
        if self._is_closed:
            raise EXCEPTIONS[ErrorCode.NOT_COORDINATOR]()
        if self._shard is None:
            raise EXCEPTIONS[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]()
        return self._shard

    @property
    def loaded_shard(self) -> CoreT | None:
        """As `shard`; None while it is not served."""
        return None if self._is_closed else self._shard

    @property
    def is_loaded(self) -> bool:
        """Whether it serves."""
        return self.loaded_shard is not None

    async def ask(self, make_request: MakeRequest) -> Any:
        """The answer, when there is one. Raises as `shard` does, also when the shard is let go meanwhile.

        Raises CoordinatorNotAvailableError when `coordinator.pending.writes.max` writes wait already."""
        self._next_reply_id += 1
        reply_id = self._next_reply_id
        request = make_request(reply_id)
        is_full = self.shard.pending_write_count >= self._pending_writes_max
        if is_full and not self._passes_when_full(request):
            raise EXCEPTIONS[ErrorCode.COORDINATOR_NOT_AVAILABLE]("too many writes wait for the log")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._futures[reply_id] = future
        self.step(request)
        return await future

    def step(self, event: Any) -> None:
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
        log.info("shard=%s let go", self._name)

    # Loading and serving

    async def _serve(self) -> None:
        try:
            shard = await self._load_until_it_works()
            self._shard = shard
            self._run(lambda: shard.start(self._now()))
            await self._link.run(self._on_decided)
        except FencedError as error:
            # The metadata image that says so is on its way.
            log.info("shard=%s fenced: %s", self._name, error)
            self._let_go()

    async def _load_until_it_works(self) -> CoreT:
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
                log.error("shard=%s cannot be loaded, trying again: %s", self._name, error)
                await asyncio.sleep(LOAD_RETRY.delay_ms(failures, self._rng) / 1000)

    async def _load(self, start_offset: int, end_offset: int) -> CoreT:
        started_ms = self._clock.monotonic_ms()
        loading = self._begin_load()
        slice_count = 0

        async def replay(records: memoryview) -> None:
            nonlocal slice_count
            for position, header in iter_headers(records):
                loading.replay_batch(records, position, header)
                slice_count += header.record_count
                if slice_count >= RECORDS_PER_LOAD_SLICE:
                    slice_count = 0
                    await asyncio.sleep(0)

        await self._link.load(start_offset, end_offset, replay)
        took_ms = self._clock.monotonic_ms() - started_ms
        LOAD_SECONDS.observe(took_ms / 1000)
        log.info("shard=%s loaded end_offset=%d %s took_ms=%d", self._name, end_offset, loading.story(), took_ms)
        return loading.core

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
            fatal(f"shard {self._name} failed", error)
        for reply_id, reply in effects.replies:
            future = self._futures.pop(reply_id)
            if not future.done():  # its client has gone away
                future.set_result(reply)
        for write in effects.writes:
            self._link.append(write)
        for note in effects.notes:
            log.info("shard=%s %s", self._name, note)
        self._carry_out(effects)
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
