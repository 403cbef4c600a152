"""Asks several servers the same question, and takes the first answer.

A server that is frozen, or behind a firewall that drops packets, does not answer and does not fail either. It must not
hide the servers after it in `bootstrap.servers`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from klamm.client_task import client_task
from klamm.errors import KlammError

T = TypeVar("T")


async def first_answer(
    addresses: Iterable[str], ask: Callable[[str], Awaitable[T]], *, patience_s: float
) -> tuple[T | None, list[KlammError]]:
    """Returns the first answer, or None after `ask` failed for all `addresses`; and the errors of those that failed.

    Asks the addresses in their order. The next is asked after a failure, or after `patience_s` seconds of silence;
    those before it may still answer. The calls without an answer are cancelled at the end. `ask` fails with a
    KlammError; raises every other error of `ask`."""
    errors: list[KlammError] = []
    remaining = iter(addresses)
    asked: list[asyncio.Task[T]] = []
    try:
        while (address := next(remaining, None)) is not None or asked:
            if address is not None:
                asked.append(client_task(_ask(ask, address), name=f"klamm-ask-{address}"))
            timeout_s = None if address is None else patience_s
            ended, _ = await asyncio.wait(asked, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in asked if task in ended]:
                asked.remove(task)
                try:
                    return task.result(), errors
                except KlammError as error:
                    errors.append(error)
        return None, errors
    except GeneratorExit:
        # The event loop has ended before an answer, so no task can be cancelled or waited for.
        asked.clear()
        raise
    finally:
        for task in asked:
            task.cancel()
        if asked:
            await asyncio.gather(*asked, return_exceptions=True)


async def _ask(ask: Callable[[str], Awaitable[T]], address: str) -> T:
    return await ask(address)
