"""A Kafka listener with TLS, in the event loop of asyncio and in that of uvloop."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
import uvloop

from klamm_broker.kafka.net.tls_clients import TlsClients
from tests.support.kafka_listener import ServedListener, answer_to, echo, frame

Run = Callable[[Coroutine[Any, Any, None]], None]


def run_with_uvloop(scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario)


both_loops = pytest.mark.parametrize("run", [asyncio.run, run_with_uvloop], ids=["asyncio", "uvloop"])


@contextlib.asynccontextmanager
async def opened(tls: TlsClients, **served: Any) -> AsyncIterator[ServedListener]:
    async with ServedListener(served.pop("handle", echo), tls=tls, **served) as made:
        yield made


async def refused(served: ServedListener, tls: ssl.SSLContext) -> bool:
    """Returns True if a client gets no answer. In TLS 1.3, the client may finish its handshake before the server
    does."""
    try:
        reader, writer = await served.connect(tls)
    except OSError:
        return True
    try:
        writer.write(frame(1, b"a"))
        await answer_to(reader)
    except (asyncio.IncompleteReadError, OSError):
        return True
    finally:
        writer.close()
    return False
