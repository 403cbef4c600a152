"""`klamm` as a program that measures the turns of its event loop: `python -m tests.support.turn_meter FILE up ...`.

For each turn that takes the processor for more than `NOTED_S`, it writes a line to FILE: the milliseconds, and what
ran. A turn is what the event loop runs without a chance for others: one callback, or one step of a task. Processor time
is that of the loop's thread, so other processes do not lengthen it much.
"""

from __future__ import annotations

import asyncio
import pathlib
import sys
from time import thread_time
from typing import Any, NamedTuple, TextIO

import uvloop

NOTED_S = 0.01


class LoopTurn(NamedTuple):
    """A turn that took long."""

    ms: float
    what: str


def turns_in(file: pathlib.Path) -> list[LoopTurn]:
    """Returns the turns that the program has noted so far."""
    lines = [line.split(" ", 1) for line in file.read_text().splitlines()]
    return [LoopTurn(float(ms), what) for ms, what in lines]


def _measure(file: TextIO) -> None:
    # uvloop does not tell when a callback begins and ends.
    run = asyncio.Handle._run

    def measured(handle: Any) -> None:
        began_s = thread_time()
        callback = handle._callback
        run(handle)
        if (took_s := thread_time() - began_s) > NOTED_S:
            file.write(f"{took_s * 1000:.1f} {_name(callback)}\n")

    setattr(asyncio.Handle, "_run", measured)  # noqa: B010 - the types do not allow it
    uvloop.run = lambda main, **_: asyncio.run(main)


def _name(callback: Any) -> str:
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        coroutine: Any = owner.get_coro()
        return f"task {owner.get_name()} {coroutine.__qualname__}"
    return str(getattr(callback, "__qualname__", callback))


if __name__ == "__main__":
    from klamm_cli.main import main

    with pathlib.Path(sys.argv.pop(1)).open("a", buffering=1) as noted:
        _measure(noted)
        main()
