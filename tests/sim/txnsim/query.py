"""A streaming query with an exactly-once sink, as Spark runs one: a driver, tasks that are retried, a checkpoint.

A run takes the batch after the last one of the checkpoint. Each of its tasks registers, writes its part in a
transaction and prepares it. Then the driver decides, and advances the checkpoint. A driver may die at any point, or
live on beside the run that replaces it. A task may die, or be tried a second time although it lives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from klamm.errors import ErrorCode
from klamm.ledger_ids import LedgerId
from klamm_coordinator.ledger.ledger import Verdict
from klamm_coordinator.ledger.messages import DecideBatch, Part, RegisterRun
from klamm_coordinator.transaction.messages import InitProducerId, PrepareTxn
from klamm_coordinator.transaction.metadata import ProducerIdAndEpoch
from tests.sim.kit.world import MS
from tests.sim.txnsim.batch_checks import BatchChecks
from tests.sim.txnsim.caller import Caller
from tests.sim.txnsim.producer import AGAIN
from tests.support.violation import require

if TYPE_CHECKING:
    from tests.sim.txnsim.cluster import Cluster

LEDGER = LedgerId("sink", "query")
TASK_DEATH_PROBABILITY = 0.1
SPECULATION_PROBABILITY = 0.1
ATTEMPTS_MAX = 8
GIVE_UP_PROBABILITY = 0.5
"""The probability that a failing driver aborts its batch, as Spark does unless it is killed."""


class Query:
    """`checkpoint` is the next batch, and outlives every run."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.checks = BatchChecks(cluster)
        self.checkpoint = 0
        self.is_stopped = False
        self.runs: list[Run] = []
        self._run_count = 0

    def start_run(self) -> None:
        """Starts a run, even if another one is alive."""
        if self.is_stopped:
            return
        self._run_count += 1
        run = Run(self, f"run-{self._run_count}")
        self.runs = [one for one in self.runs if one.is_alive] + [run]
        run.begin_batch()

    def crash(self) -> None:
        """The driver of the newest run, and with it its tasks."""
        if self.runs:
            self.runs[-1].end("killed")

    def stop(self) -> None:
        self.is_stopped = True
        for run in self.runs:
            run.end("stopped")

    def watch(self) -> None:
        """Starts a run if the query has none that is alive, again and again."""
        if not any(run.is_alive for run in self.runs):
            self.start_run()
        self.cluster.world.after(self.cluster.world.rng.randint(10, 200) * MS, self.watch)


class Run(Caller):
    """A driver."""

    def __init__(self, query: Query, run_id: str) -> None:
        super().__init__(query.cluster)
        self.query = query
        self.run_id = run_id
        self.batch = 0
        self._tasks: list[Task] = []
        self._done: dict[int, Part | None] = {}
        self._task_count = self.cluster.world.rng.randint(1, 3)

    def end(self, why: str) -> None:
        if self.is_alive:
            self.cluster.note(f"{self.run_id} ends: {why}")
        self.crash()
        for task in self._tasks:
            task.crash()

    def begin_batch(self) -> None:
        self._step += 1
        for task in self._tasks:
            # The task may live on, but its results are ignored.
            task.is_listened_to = False
        self.batch = self.query.checkpoint
        self._done = {}
        self._tasks = []
        for number in range(self._task_count):
            self._start_task(number, 0)
            if self.cluster.world.rng.random() < SPECULATION_PROBABILITY:
                self._start_task(number, 1)

    def _start_task(self, number: int, attempt: int) -> None:
        self._tasks.append(Task(self, number, attempt))

    def on_task_death(self, number: int, attempt: int) -> None:
        if self.is_alive and number not in self._done:
            self._start_task(number, attempt + 2)

    def on_task_done(self, number: int, part: Part | None) -> None:
        """Notes the result of a task. The first of its attempts counts. With None, the batch is written already."""
        if not self.is_alive or number in self._done:
            return
        self._done[number] = part
        if len(self._done) == self._task_count:
            parts = tuple(one for one in self._done.values() if one is not None)
            if parts:
                require(len(parts) == self._task_count, f"batch-whole: {self.batch} is written, and {parts} prepared")
                self._decide(parts)
            else:
                self._on_committed()

    def fail(self, why: str) -> None:
        """A task or the decision failed for good."""
        if self.is_alive and self.cluster.world.rng.random() < GIVE_UP_PROBABILITY:
            self._give_up()
        else:
            self.end(why)

    def _decide(self, parts: tuple[Part, ...]) -> None:
        self._step += 1
        self.query.checks.on_decision_asked(self.run_id, self.batch, parts)
        fields = {"ledger": LEDGER, "run_id": self.run_id, "batch_id": self.batch, "committed": True, "parts": parts}
        self._ask(DecideBatch, fields, self._on_decided)

    def _on_decided(self, reply: Any) -> None:
        if reply.error is ErrorCode.NONE and reply.verdict is Verdict.COMMITTED:
            self._on_committed()
        else:
            self.fail(f"{reply.error.name} {reply.verdict.name}")

    def _give_up(self) -> None:
        self._step += 1
        fields = {"ledger": LEDGER, "run_id": self.run_id, "batch_id": self.batch, "committed": False}
        self._ask(DecideBatch, fields, lambda reply: self.end(f"gave up: {reply.verdict.name}"))

    def _on_committed(self) -> None:
        self.query.checks.on_told_committed(self.batch)
        self._step += 1
        # It may die before the checkpoint has it.
        self._later(self._move_on)

    def _move_on(self) -> None:
        self.query.checkpoint = max(self.query.checkpoint, self.batch + 1)
        self.begin_batch()

    def _ask(self, request_type: Any, fields: dict[str, Any], on_reply: Callable[[Any], None]) -> None:
        _ask(self, request_type, fields, on_reply)


class Task(Caller):
    """One attempt of a task."""

    def __init__(self, run: Run, number: int, attempt: int) -> None:
        super().__init__(run.cluster)
        self.run = run
        self.number = number
        self.attempt = attempt
        self.batch = run.batch
        self.is_listened_to = True
        self._producer = ProducerIdAndEpoch(-1, -1)
        self._transactional_id = LEDGER.part(number, attempt)
        self._dies_at = self.cluster.world.rng.choice(("write", "prepare", "done"))
        if self.cluster.world.rng.random() > TASK_DEATH_PROBABILITY:
            self._dies_at = ""
        _ask(self, RegisterRun, {"ledger": LEDGER, "run_id": run.run_id, "batch_id": self.batch}, self._on_registered)

    def _dies(self, point: str) -> bool:
        if point != self._dies_at:
            return False
        self._fail("died")
        return True

    def _on_registered(self, reply: Any) -> None:
        if reply.error is not ErrorCode.NONE or reply.verdict not in (Verdict.UNDECIDED, Verdict.COMMITTED):
            self._fail(f"register: {reply.error.name} {reply.verdict.name}", is_final=True)
        elif reply.verdict is Verdict.COMMITTED:
            self._succeed(None)
        else:
            timeout_ms = self.cluster.options.transaction_timeout_ms
            fields = {"transactional_id": self._transactional_id, "timeout_ms": timeout_ms, "expected": None}
            self._step += 1
            _ask(self, InitProducerId, fields, self._on_init)

    def _on_init(self, reply: Any) -> None:
        assert reply.error is ErrorCode.NONE, reply
        self._producer = reply.producer
        self.run.query.checks.on_part(self.run.run_id, self.batch, self._producer)
        self._step += 1
        rng = self.cluster.world.rng
        self._produce(rng.randrange(len(self.cluster.partitions)), 0, rng.randint(1, 3))

    def _produce(self, number: int, sequence: int, end: int) -> None:
        if self._dies("write"):
            return
        if sequence == end:
            self._prepare()
            return
        value = self.cluster.next_value()
        self.cluster.checks.on_sent(self.cluster.partitions[number], self._producer, value)
        self._try_produce(number, sequence, end, value)

    def _try_produce(self, number: int, sequence: int, end: int, value: int) -> None:
        partition = self.cluster.partitions[number]

        def send(receive: Callable[[Any], None]) -> None:
            self.cluster.network.send(
                partition.on_produce, self._transactional_id, self._producer, sequence, value, receive
            )

        def on_reply(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self.cluster.checks.on_acknowledged(partition, self._producer, value)
                self._step += 1
                self._produce(number, sequence + 1, end)
            elif code in AGAIN:
                self._later(self._try_produce, number, sequence, end, value)
            else:
                self._fail(code.name)

        self._call(send, on_reply)

    def _prepare(self) -> None:
        self._step += 1
        if self._dies("prepare"):
            return
        self.cluster.checks.on_commit_asked(self._producer)
        fields = {
            "transactional_id": self._transactional_id,
            "producer": self._producer,
            "run_id": self.run.run_id,
            "batch_id": self.batch,
        }
        _ask(self, PrepareTxn, fields, self._on_prepared)

    def _on_prepared(self, reply: Any) -> None:
        self._step += 1
        if reply.error is not ErrorCode.NONE or reply.verdict is not Verdict.UNDECIDED:
            self._fail(f"{reply.error.name} {reply.verdict.name}")
        elif not self._dies("done"):
            self._succeed(Part(self._transactional_id, self._producer))

    def _succeed(self, part: Part | None) -> None:
        if self.is_listened_to:
            self.run.on_task_done(self.number, part)

    def _fail(self, why: str, *, is_final: bool = False) -> None:
        self.crash()
        if not self.is_listened_to:
            return
        if is_final or self.attempt >= ATTEMPTS_MAX:
            self.run.fail(why)
        else:
            self.run.on_task_death(self.number, self.attempt)


def _ask(caller: Any, request_type: Any, fields: dict[str, Any], on_reply: Callable[[Any], None]) -> None:
    """Asks the ledger's coordinator, until it says something that does not pass."""

    def attempt() -> None:
        caller._call(lambda receive: caller.cluster.ask(request_type, fields, receive), receive)

    def receive(reply: Any) -> None:
        code = reply if isinstance(reply, ErrorCode) else reply.error
        if code in AGAIN:
            caller._later(attempt)
        else:
            on_reply(reply)

    attempt()
