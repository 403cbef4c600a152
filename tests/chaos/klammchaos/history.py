"""The calls of clients, their answers, and the times of both."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict

from klamm.errors import ErrorCode
from tests.chaos.klammchaos.topic_model import Answer, Call, ReadConfig, ReadTopic
from tests.support.linearizability import NEVER, Operation
from tests.support.loop_time import loop_time_s


class History:
    """The operations by the name of their topic, and the times of the answers."""

    def __init__(self) -> None:
        self.operations: dict[str, list[Operation]] = defaultdict(list)
        self.answered_s: list[float] = []
        """The times of the answers, in order."""
        self._answered = asyncio.Event()

    def record(self, name: str, client: str, call: Call, answer: Answer | None, invoked_s: float) -> None:
        """Records an operation that ends now. Without an answer its outcome is unknown. A read without an answer is
        left out."""
        returned_s = NEVER if answer is None else loop_time_s()
        if answer is not None or not isinstance(call, ReadTopic | ReadConfig):
            self.operations[name].append(
                Operation(client=client, call=call, result=answer, invoked_s=invoked_s, returned_s=returned_s)
            )
        if answer is not None:
            self.answered_s.append(returned_s)
            self._answered.set()

    async def wait_for_answer(self, since_s: float, timeout_s: float) -> None:
        """Waits until a client has received an answer after `since_s`. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while not self.answered_s or self.answered_s[-1] <= since_s:
                self._answered.clear()
                await self._answered.wait()

    def outage_s(self, since_s: float, until_s: float) -> float:
        """Returns the longest time in which no client got an answer."""
        times_s = [since_s, *(at_s for at_s in self.answered_s if since_s < at_s <= until_s), until_s]
        return max(later_s - before_s for before_s, later_s in itertools.pairwise(times_s))

    def count(self) -> dict[str, int]:
        """Returns the number of operations by outcome."""
        counts = {"ok": 0, "refused": 0, "unknown": 0}
        for operation in itertools.chain.from_iterable(self.operations.values()):
            if not isinstance(operation.result, Answer):
                counts["unknown"] += 1
            else:
                counts["ok" if operation.result.code is ErrorCode.NONE else "refused"] += 1
        return counts
