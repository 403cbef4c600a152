"""Keeps clients for the next tasks, because Spark forks a Python worker once and gives it many tasks.

A client with state of its user is for one user at a time (`using`). It is kept only if that use raised no exception, so
no task gets a client that another task left in an unknown state. Clients without such state are shared (`get`). A
client that was idle for a while is closed when a task takes or returns the next one. Spark itself ends a worker that
has had no tasks for a minute.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

from klamm.config import ClientConfig
from pyspark_klamm.client_file import with_file

CAPACITY: Final = 8
IDLE_S: Final = 300.0


class Closable(Protocol):
    """A client that can be kept and closed."""

    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)
Settings = Mapping[str, Any]


class ClientCache(Generic[T]):
    """Idle and shared clients by their settings, at most `capacity`. Only one thread may use it: a worker runs one task
    at a time."""

    def __init__(
        self,
        make: Callable[[Settings], T],
        config_class: type[ClientConfig],
        clock_s: Callable[[], float],
        *,
        capacity: int = CAPACITY,
        idle_s: float = IDLE_S,
    ) -> None:
        """Makes an empty collection. `config_class` says which settings of a file (`client_file`) the clients know."""
        self._make = make
        self._config_class = config_class
        self._clock_s = clock_s
        self._capacity = capacity
        self._idle_s = idle_s
        self._idle: dict[frozenset[tuple[str, Any]], tuple[T, float]] = {}
        """The idle clients by settings, each with the time in seconds since which it is idle. The longest idle comes
        first."""

    def get(self, settings: Settings) -> T:
        """Returns the shared client with these settings. Makes one if there is none."""
        with self.using(settings) as client:
            return client

    @contextlib.contextmanager
    def using(self, settings: Settings) -> Iterator[T]:
        """Gives the caller a client with these settings for itself. Makes one if none is idle.

        If the caller's block raises, the client is closed and not kept."""
        key = frozenset(settings.items())
        kept = self._idle.pop(key, None)
        self._close_idle(self._capacity)
        client = self._make(with_file(settings, self._config_class)) if kept is None else kept[0]
        try:
            yield client
        except BaseException:
            client.close()
            raise
        self._close_idle(self._capacity - 1)
        self._idle[key] = client, self._clock_s()

    def _close_idle(self, room: int) -> None:
        now_s = self._clock_s()
        for key, (client, since_s) in list(self._idle.items()):
            if len(self._idle) > room or now_s - since_s > self._idle_s:
                del self._idle[key]
                client.close()
