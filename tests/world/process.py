"""Machines, and the simulated processes that run on them."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from klamm.process import PROCESS, Process
from tests.world.event_loop import SimLoop, install_generator_hooks
from tests.world.kernel import SECOND_US, WALL_START_US, ProcessEnded, World
from tests.world.threads import SimEvent, SimExecutor

if TYPE_CHECKING:
    from tests.world.network import Connection


class Host:
    """A machine. Its disks keep their content when its processes die."""

    def __init__(self, world: World, name: str, address: str) -> None:
        self.world = world
        self.name = name
        self.address = address
        """Its address in the network, such as 10.0.0.1."""
        self.clock_ahead_us = 0
        """How much its wall clock is ahead of the world's."""
        self.process: SimProcess | None = None
        """The process that runs here, or the last one that did."""
        self.process_count = 0

    @property
    def is_running(self) -> bool:
        return self.process is not None and not self.process.is_dead

    def start(self, prepare: Callable[[SimProcess], object]) -> SimProcess:
        """Starts a process. `prepare` runs in its context, and may set context variables."""
        assert not self.is_running, f"{self.name} already runs"
        self.process_count += 1
        self.process = process = SimProcess(self, self.process_count)
        process.context.run(prepare, process)
        self.world.note("start", self.name, self.process_count)
        return process


class SimProcess:
    """One life of a process: its loop, its clocks, its randomness and its threads."""

    def __init__(self, host: Host, number: int) -> None:
        self.host = host
        self.name = host.name
        self.world = host.world
        self.rng = random.Random(f"{self.world.seed}/{host.name}/{number}")
        self.is_dead = False
        self.is_paused = False
        self.busy_until_us = 0
        self.connections: dict[Connection, None] = {}
        self.at_death: list[Callable[[], object]] = []
        self._cost_us = 0
        self._held_back: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        """What would have happened during a pause."""
        self.loop = SimLoop(self)  # type: ignore[abstract]  # it has what Klamm uses of a loop
        self.context = contextvars.Context()
        self.context.run(PROCESS.set, self._as_klamm_sees_it())

    def _as_klamm_sees_it(self) -> Process:
        return Process(
            wall_ms=self.wall_ms,
            monotonic_ms=self.monotonic_ms,
            elapsed_s=lambda: self.monotonic_us() / SECOND_US,
            thread_s=lambda: self._cost_us / SECOND_US,
            make_executor=lambda thread_count, name: SimExecutor(self, thread_count, name),
            make_event=lambda: SimEvent(self),
            make_rng=lambda: random.Random(self.rng.getrandbits(64)),
            randbytes=self.rng.randbytes,
            exit=self.exit,
        )

    # Its clocks. It is a `klamm_server.runtime.clock.Clock`.

    def wall_ms(self) -> int:
        return (WALL_START_US + self.world.now_us + self.host.clock_ahead_us) // 1000

    def monotonic_ms(self) -> int:
        return self.monotonic_us() // 1000

    def monotonic_us(self) -> int:
        return self.world.now_us + self._cost_us

    def world_us(self, loop_time: float) -> int:
        """Returns the world's time at a time of its loop."""
        return int(loop_time * SECOND_US)

    def spend_us(self, cost_us: int) -> None:
        """Notes that the code which runs now takes time, because it waits for a disk."""
        self._cost_us += cost_us

    def take_cost_us(self) -> int:
        cost_us, self._cost_us = self._cost_us, 0
        return cost_us

    # Running code

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        with self.running(self.loop):
            return self.loop.create_task(coroutine, name=name, context=self.context.copy())

    @contextlib.contextmanager
    def running(self, loop: SimLoop | None) -> Iterator[None]:
        """The code in the block belongs to this process. It runs on the loop, or on a thread if that is None."""
        world = self.world
        before, world.current = world.current, self
        cost_before_us, self._cost_us = self._cost_us, 0
        loop_before = asyncio._get_running_loop()
        asyncio._set_running_loop(loop)
        install_generator_hooks(self.loop)
        try:
            yield
        finally:
            asyncio._set_running_loop(loop_before)
            world.current = before
            if before is self:
                self._cost_us += cost_before_us

    def when_running(self, do: Callable[..., object], *arguments: Any) -> None:
        """Calls `do` now. If the process is paused, calls it when the pause ends. If it is dead, does nothing."""
        if self.is_paused:
            self._held_back.append((do, arguments))
        elif not self.is_dead:
            do(*arguments)

    # Its end

    def pause(self) -> None:
        """Pauses the process, as SIGSTOP does. The network still accepts messages for it."""
        self.is_paused = True
        self.world.note("pause", self.name)

    def resume(self) -> None:
        self.is_paused = False
        held_back, self._held_back = self._held_back, []
        self.world.note("resume", self.name)
        for do, arguments in held_back:
            self.when_running(do, *arguments)

    def exit(self, status: int) -> NoReturn:
        """Ends it from inside."""
        self.die(f"exit {status}")
        self.world.deaths.append(f"{self.name}: exit {status}")
        raise ProcessEnded(status)

    def die(self, why: str) -> None:
        """Ends it as kill -9 does: nothing of it runs any more, not even a `finally`."""
        if self.is_dead:
            return
        self.is_dead = True
        self.world.note("death", self.name, why)
        self.world.remains += [self, list(asyncio.all_tasks(self.loop))]
        self.loop.forget_callbacks()
        for connection in list(self.connections):
            connection.on_process_died(self)
        for clean_up in self.at_death:
            clean_up()

    def signal(self, number: int) -> None:
        """Sends a signal that it handles."""
        self.loop.call_soon(self.loop.on_signal[number], context=self.context.copy())
