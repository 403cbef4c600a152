"""The user's rebalance listener, and the calls to it."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

from klamm.model import TopicPartition

Partitions = frozenset[TopicPartition]
A = TypeVar("A")


class Invoke(Protocol):
    """Calls a user's function in the thread or loop for user code. Awaits its result if that is awaitable."""

    def __call__(self, function: Callable[[A], object], argument: A, /) -> Awaitable[None]:
        """Raises what `function` raises."""


class ConsumerRebalanceListener(Protocol):
    """The consumer calls it when it gains or loses partitions.

    With an AsyncConsumer, the methods may be coroutine functions. A listener may also have
    `on_partitions_lost(partitions)`, for partitions that another member may own already. Without that method, the
    consumer calls `on_partitions_revoked` for them. An error that a method raises leaves the poll that called it."""

    def on_partitions_revoked(self, partitions: Partitions) -> object:
        """Called before the partitions are revoked. The consumer still owns them, so this is the last chance to
        commit."""

    def on_partitions_assigned(self, partitions: Partitions) -> object:
        """Called after partitions were added to the assignment. The set may be empty."""


class WeakListener:
    """A listener that belongs to the consumer's object in the application. The tasks of the consumer must not keep it
    alive, because it often refers to this object."""

    def __init__(self, listener: ConsumerRebalanceListener | None) -> None:
        self.listener = listener


class RebalanceReports:
    """Calls the user's rebalance listener, if there is one."""

    def __init__(self, invoke: Invoke) -> None:
        self._kept: Callable[[], WeakListener | None] = lambda: None
        self._invoke = invoke

    @property
    def listener(self) -> ConsumerRebalanceListener | None:
        kept = self._kept()
        return None if kept is None else kept.listener

    def listen(self, listener: ConsumerRebalanceListener | None) -> WeakListener:
        """Calls `listener` from now on, as long as the returned object exists."""
        kept = WeakListener(listener)
        self._kept = weakref.ref(kept)
        return kept

    async def assigned(self, partitions: Partitions) -> None:
        """Reports partitions that were added."""
        await self._call("on_partitions_assigned", partitions)

    async def gone(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        """Reports partitions that are about to be revoked. With `lost`, the consumer has lost them already."""
        going = frozenset(partitions)
        if not going:
            return
        if lost and hasattr(self.listener, "on_partitions_lost"):
            await self._call("on_partitions_lost", going)
        else:
            await self._call("on_partitions_revoked", going)

    async def _call(self, name: str, partitions: Partitions) -> None:
        method = getattr(self.listener, name, None)
        if method is not None:
            await self._invoke(method, partitions)
