"""One shard while this coordinator owns it: claims its log, loads it, serves it, and releases it.

The shell around a pure shard with any rules. Requests become futures, writes go to the log, and deadlines become a
timer of the event loop. Everything runs on one event loop and no step awaits, so that steps never overlap.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from klamm.errors import EXCEPTIONS, ErrorCode, KlammError
from klamm.records import iter_headers
from klamm.retry import Backoff
from klamm_coordinator.io.log_link import FencedError, LogLink
from klamm_coordinator.io.metrics import APPENDS_FAILED, LOAD_SECONDS
from klamm_coordinator.runtime.effects import ShardEffects
from klamm_coordinator.runtime.events import TimePassed, WriteAppended, WriteFailed
from klamm_coordinator.runtime.rules import Rules
from klamm_coordinator.runtime.shard_runtime import ShardRuntime
from klamm_coordinator.runtime.timers import Now
from klamm_server.rpc.retries import ServerRetries
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.faults import fatal, watch

log = logging.getLogger(__name__)

LOAD_RETRY = Backoff(initial_ms=100, max_ms=5_000)
RECORDS_PER_LOAD_SLICE = 2_000
"""The records that a load replays in one turn. Between two turns, other shards answer heartbeats."""

MakeRequest = Callable[[int], Any]
"""Returns a request with the reply id that is passed."""


RulesT = TypeVar("RulesT", bound=Rules)


class OrderCarrier(Protocol):
    """Carries out the orders of one kind of shard. A kind of shard without orders has no carrier."""

    def carry_out(self, orders: Sequence[Any], host: ShardHost[Any]) -> None:
        """Carries out the orders of one step. The host calls it after each step of its shard."""

    def forget(self, host: ShardHost[Any]) -> None:
        """Stops all work for a shard that this coordinator releases. The shard gets no event from it after that."""


class ShardHost(Generic[RulesT]):
    """Serves a shard during one assignment. It is made when the shard is assigned, and closed when the assignment
    ends."""

    def __init__(
        self,
        number: int,
        link: LogLink,
        make_shard: Callable[[], ShardRuntime[RulesT]],
        *,
        carrier: OrderCarrier | None = None,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.number = number
        self._name = f"{link.topic_name}-{number}"
        self._link = link
        self._make_shard = make_shard
        self._carrier = carrier
        self._clock = clock
        self._rng = rng
        self._shard: ShardRuntime[RulesT] | None = None
        """The shard, or None until it is loaded."""
        self._futures: dict[int, asyncio.Future[Any]] = {}
        self._next_reply_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._is_closed = False
        self._task = watch(asyncio.create_task(self._serve(), name=f"shard-{self._name}"))

    @property
    def coordinator_epoch(self) -> int:
        """The epoch of this assignment of the shard. A later owner has a greater epoch."""
        return self._link.coordinator_epoch

    @property
    def rules(self) -> RulesT:
        """The shard's rules, for reading only. Raises as `shard` does."""
        return self.shard.rules

    @property
    def shard(self) -> ShardRuntime[RulesT]:
        """The loaded shard. Raises CoordinatorLoadInProgressError before it is loaded, or NotCoordinatorError after
        `close`."""
        if self._is_closed:
            raise EXCEPTIONS[ErrorCode.NOT_COORDINATOR]()
        if self._shard is None:
            raise EXCEPTIONS[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]()
        return self._shard

    @property
    def loaded_shard(self) -> ShardRuntime[RulesT] | None:
        """The shard, or None while this coordinator does not serve it."""
        return None if self._is_closed else self._shard

    @property
    def is_loaded(self) -> bool:
        """True while this coordinator serves the shard."""
        return self.loaded_shard is not None

    async def ask(self, make_request: MakeRequest) -> Any:
        """Waits for the answer and returns it. Raises as `shard` does, also if the shard is released during the wait.

        Raises CoordinatorNotAvailableError when `coordinator.pending.writes.max` writes, or as many bytes as
        `coordinator.pending.writes.max.bytes`, wait already."""
        self._next_reply_id += 1
        reply_id = self._next_reply_id
        request = make_request(reply_id)
        if not self._takes(request):
            self._run(lambda: self.shard.refuse(request, self._now()))
            raise EXCEPTIONS[ErrorCode.COORDINATOR_NOT_AVAILABLE](
                "too many writes are waiting for the log: try again later"
            )
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._futures[reply_id] = future
        self.step(request)
        return await future

    def _takes(self, request: Any) -> bool:
        return self.shard.takes(request) and (self._link.admits_writes or self.shard.rules.passes_when_full(request))

    def step(self, event: Any) -> None:
        """Passes an event to the shard and carries out the effects. Does nothing while the shard is not loaded: the log
        has its state."""
        if self.is_loaded:
            self._run(lambda: self.shard.step(event, self._now()))

    async def close(self) -> None:
        """Releases the shard. Waiting requests get an error that makes clients find the new owner."""
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
        if self._carrier is not None:
            self._carrier.forget(self)
        if self._shard is not None:
            self._shard.rules.close()
        self._link.close()
        log.info("shard=%s unloaded", self._name)

    # Loading and serving

    async def _serve(self) -> None:
        try:
            shard = await self._load_until_it_works()
            self._shard = shard
            self._run(lambda: shard.start(self._now()))
            await self._link.run(self._on_decided)
        except FencedError as error:
            # The metadata image with the new owner is on its way.
            log.info("shard=%s fenced: %s", self._name, error)
            self._let_go()

    async def _load_until_it_works(self) -> ShardRuntime[RulesT]:
        retries = ServerRetries("opening of a shard", self._name, LOAD_RETRY, self._rng)
        first_end: tuple[int, int] | None = None
        while True:
            try:
                first_end = first_end or await self._link.claim()
                return await self._load(*first_end)
            except FencedError:
                raise
            except KlammError as error:
                await retries.pause(str(error))

    async def _load(self, start_offset: int, end_offset: int) -> ShardRuntime[RulesT]:
        started_ms = self._clock.monotonic_ms()
        shard = self._make_shard()
        replayer = shard.rules.replayer()
        slice_count = 0

        async def replay(records: memoryview) -> None:
            nonlocal slice_count
            for position, header in iter_headers(records):
                replayer.replay_batch(records, position, header)
                slice_count += header.record_count
                if slice_count >= RECORDS_PER_LOAD_SLICE:
                    slice_count = 0
                    await asyncio.sleep(0)

        try:
            await self._link.load(start_offset, end_offset, replay)
        except BaseException:
            shard.rules.close()
            raise
        took_ms = self._clock.monotonic_ms() - started_ms
        LOAD_SECONDS.observe(took_ms / 1000)
        story = f"{shard.rules.summary()} skipped={replayer.skipped_count}"
        log.info("shard=%s loaded end_offset=%d %s took_ms=%d", self._name, end_offset, story, took_ms)
        return shard

    def _on_decided(self, write_id: int, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            self.step(WriteAppended(write_id=write_id))
        else:
            APPENDS_FAILED.inc()
            self.step(WriteFailed(write_id=write_id, error=code))

    # Steps

    def _run(self, step: Callable[[], ShardEffects[Any]]) -> None:
        try:
            effects = step()
        except Exception as error:  # noqa: BLE001 - a core that fails half-way leaves a wrong state
            fatal(f"shard {self._name} failed", error)
        for reply_id, reply in effects.replies:
            future = self._futures.pop(reply_id)
            if not future.done():  # its client has gone away
                future.set_result(reply)
        for write in effects.writes:
            self._link.append(write)
        for note in effects.notes:
            log.info("shard=%s %s", self._name, note)
        if self._carrier is not None:
            self._carrier.carry_out(effects.orders, self)
        self._arm()

    def _arm(self) -> None:
        """Sets one timer for the earliest deadline. If heartbeats move this deadline to a later time, the timer fires
        too early and does nothing."""
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
