"""The clients that the workload "interrupts" interrupts, and what each of them knows about its records.

A record is named `<run>:<number>`. A run is one attempt that is interrupted once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from klamm import AsyncConsumer, AsyncProducer, Consumer, Producer
from klamm.errors import IllegalStateError
from tests.chaos.klammchaos.interruptions import cancel_after, handled_after, press_ctrl_c_after
from tests.support.waiting import patience

SENT, TRANSACTED, READ = "sent", "transacted", "read"
"""The topics that the runs write to, the last one for consumers."""
RECORDS_PER_RUN: Final = 150
RECORDS_PER_TRANSACTION: Final = 5
RECORDS_PER_READER: Final = 40
READER: Final[Mapping[str, Any]] = {
    "group.id": "readers",
    "auto.offset.reset": "earliest",
    "value.deserializer": "string",
    # An interrupted consumer that cannot leave its group delays the next one for this long.
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 1_000,
}


@dataclass
class Known:
    """What the clients were told."""

    returned: Counter[str] = field(default_factory=Counter)
    """How many records of each run `send` took."""
    committed: dict[str, bool | None] = field(default_factory=dict)
    """Whether each transaction was committed; None if it is unknown."""
    handled: Counter[str] = field(default_factory=Counter)
    """How often the readers handled each record."""
    interrupted_readers: set[str] = field(default_factory=set)
    """The records that a reader handled which was interrupted."""
    runs: Counter[str] = field(default_factory=Counter)
    """The interrupted runs by kind."""

    def note(self, kind: str, *, interrupted: bool) -> None:
        self.runs[kind if interrupted else f"{kind}, in time"] += 1


class Interrupted:
    """Runs each kind of client once, and interrupts it."""

    def __init__(self, bootstrap: str, rng: random.Random, known: Known) -> None:
        self._bootstrap = bootstrap
        self._rng = rng
        self._known = known
        self._number = 0
        self.kinds: list[Callable[[], None]] = [
            self.send,
            self.send_with_a_handler,
            self.close,
            self.transaction,
            self.read,
            self.send_asynchronously,
            self.close_asynchronously,
            self.transaction_asynchronously,
            self.read_asynchronously,
        ]

    def _name(self) -> str:
        self._number += 1
        return f"{self._number:06}"

    def _delay_s(self, longest_s: float) -> float:
        return max(1e-6, self._rng.random() ** 2 * longest_s)

    # Producers

    def _send_all(self, producer: Producer, run: str) -> None:
        for number in range(RECORDS_PER_RUN):
            producer.send(SENT, f"{run}:{number}".encode())
            self._known.returned[run] += 1

    def send(self) -> None:
        """Ctrl-C in a loop that sends. `flush` then sends everything that `send` took."""
        run = self._name()
        with Producer(bootstrap_servers=self._bootstrap) as producer:
            if self._rng.random() < 0.7:
                producer.partitions_for(SENT)
            interrupted = press_ctrl_c_after(self._delay_s(0.02), lambda: self._send_all(producer, run))
            self._known.note("send", interrupted=interrupted)
            producer.flush(patience())

    def send_with_a_handler(self) -> None:
        """A signal's handler flushes or closes the producer, as a program does at SIGTERM."""
        run = self._name()
        use = self._rng.choice(["flush", "close"])
        with Producer(bootstrap_servers=self._bootstrap) as producer:
            called = False

            def handler(*_: object) -> None:
                nonlocal called
                called = True
                getattr(producer, use)(patience())

            with contextlib.suppress(IllegalStateError), handled_after(self._delay_s(0.02), handler):
                self._send_all(producer, run)
            self._known.note(f"handler that calls {use}", interrupted=called)

    def close(self) -> None:
        """Ctrl-C in `close`, which is then called again."""
        run = self._name()
        producer = Producer(bootstrap_servers=self._bootstrap, linger_ms=self._rng.choice([0, 100]))
        futures = [producer.send(SENT, f"{run}:{number}".encode()) for number in range(20)]
        self._known.note("close", interrupted=press_ctrl_c_after(self._delay_s(0.01), producer.close))
        producer.close(patience())
        self._known.returned[run] = sum(future.exception(patience()) is None for future in futures)
        if any(future.exception(0) is not None for future in futures):
            raise AssertionError(f"close lost records of the run {run}: {futures}")

    def transaction(self) -> None:
        """Ctrl-C in a transaction. It is then whole, or there is nothing of it."""
        run = self._name()
        self._known.committed[run] = None

        def transact() -> None:
            with producer.transaction():
                for number in range(RECORDS_PER_TRANSACTION):
                    producer.send(TRANSACTED, f"{run}:{number}".encode())
            self._known.committed[run] = True

        with Producer(bootstrap_servers=self._bootstrap, transactional_id=f"t{self._rng.randrange(5)}") as producer:
            producer.init_transactions()
            self._known.note("transaction", interrupted=press_ctrl_c_after(self._delay_s(0.02), transact))

    # Consumers

    def _note_handled(self, handled: list[str], *, interrupted: bool) -> None:
        self._known.handled.update(handled)
        if interrupted:
            self._known.interrupted_readers.update(handled)

    def read(self) -> None:
        """Ctrl-C anywhere in the life of a consumer, from its creation to its end."""
        handled: list[str] = []
        consumer: Consumer[str, str] | None = None

        def read() -> None:
            nonlocal consumer
            consumer = Consumer({**READER, "bootstrap.servers": self._bootstrap})
            with consumer:
                consumer.subscribe([READ])
                for record in consumer:
                    handled.append(record.value)
                    if len(handled) == RECORDS_PER_READER:
                        break

        interrupted = press_ctrl_c_after(self._delay_s(0.15), read)
        if consumer is not None:
            consumer.close()
        self._note_handled(handled, interrupted=interrupted)
        self._known.note("read", interrupted=interrupted)

    # The same with asyncio

    def send_asynchronously(self) -> None:
        """A cancelled task that sends."""
        run = self._name()

        async def main() -> None:
            async with AsyncProducer(bootstrap_servers=self._bootstrap) as producer:

                async def send_all() -> None:
                    for number in range(RECORDS_PER_RUN):
                        await producer.send(SENT, f"{run}:{number}".encode())
                        self._known.returned[run] += 1
                        if not number % 10:
                            await asyncio.sleep(0)

                self._known.note("cancelled send", interrupted=await cancel_after(self._delay_s(0.02), send_all()))
                await asyncio.wait_for(producer.flush(), patience())

        asyncio.run(main())

    def close_asynchronously(self) -> None:
        """A cancelled task that closes a producer, which is then closed again."""
        run = self._name()

        async def main() -> None:
            producer = AsyncProducer(bootstrap_servers=self._bootstrap, linger_ms=self._rng.choice([0, 100]))
            futures = [await producer.send(SENT, f"{run}:{number}".encode()) for number in range(20)]
            interrupted = await cancel_after(self._delay_s(0.01), producer.close())
            self._known.note("cancelled close", interrupted=interrupted)
            await producer.close()
            for future in futures:
                await future
            self._known.returned[run] = len(futures)

        asyncio.run(main())

    def transaction_asynchronously(self) -> None:
        """A cancelled task with a transaction."""
        run = self._name()
        self._known.committed[run] = None

        async def main() -> None:
            settings = {"bootstrap.servers": self._bootstrap, "transactional.id": f"t{self._rng.randrange(5)}"}
            async with AsyncProducer(settings) as producer:
                await producer.init_transactions()

                async def transact() -> None:
                    async with producer.transaction():
                        for number in range(RECORDS_PER_TRANSACTION):
                            await producer.send(TRANSACTED, f"{run}:{number}".encode())
                    self._known.committed[run] = True

                interrupted = await cancel_after(self._delay_s(0.02), transact())
                self._known.note("cancelled transaction", interrupted=interrupted)

        asyncio.run(main())

    def read_asynchronously(self) -> None:
        """A cancelled task that reads."""
        handled: list[str] = []

        async def read() -> None:
            async with AsyncConsumer({**READER, "bootstrap.servers": self._bootstrap}) as consumer:
                consumer.subscribe([READ])
                async for record in consumer:
                    handled.append(record.value)
                    if len(handled) == RECORDS_PER_READER:
                        break

        async def main() -> None:
            interrupted = await cancel_after(self._delay_s(0.15), read())
            self._note_handled(handled, interrupted=interrupted)
            self._known.note("cancelled read", interrupted=interrupted)

        asyncio.run(main())
