"""Measures the event loop's time that a request takes, for `request_percentage` (KIP-124)."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from klamm.process import PROCESS

T = TypeVar("T")


async def charged(work: Coroutine[Any, Any, T], charge: Callable[[float], None]) -> T:
    """Awaits `work`. Calls `charge` with the seconds of each of its steps, but not with those of its waits."""
    return await _in_charged_steps(work, charge)


@types.coroutine
def _in_charged_steps(work: Coroutine[Any, Any, T], charge: Callable[[float], None]) -> Generator[Any, Any, T]:
    elapsed_s = PROCESS.get().elapsed_s
    began_s = elapsed_s()
    try:
        waited = work.send(None)
        while True:
            charge(elapsed_s() - began_s)
            try:
                sent = yield waited
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:  # noqa: BLE001 - every exception is passed to the coroutine
                began_s = elapsed_s()
                waited = work.throw(error)
            else:
                began_s = elapsed_s()
                waited = work.send(sent)
    except StopIteration as end:
        charge(elapsed_s() - began_s)
        answer: T = end.value
        return answer
