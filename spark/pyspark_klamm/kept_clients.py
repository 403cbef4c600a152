"""Clients that outlive the tasks that use them: Spark forks its Python workers once and gives them many tasks.

What keeps something of its user is taken while it is used (`using`) and given back only when all went well, so nobody
meets one that another left in the middle of something; what does not is shared (`get`). What was not used for a while
is closed when somebody takes or gives the next one; a worker without tasks Spark ends by itself after a minute.
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


class KeptClients(Generic[T]):
    """Idle and shared clients by their settings, at most `capacity`. For one thread: a worker's tasks take turns."""

    def __init__(
        self,
        make: Callable[[Settings], T],
        config_class: type[ClientConfig],
        clock_s: Callable[[], float],
        *,
        capacity: int = CAPACITY,
        idle_s: float = IDLE_S,
    ) -> None:
        """`config_class` says what of a file (`client_file`) they know."""
        self._make = make
        self._config_class = config_class
        self._clock_s = clock_s
        self._capacity = capacity
        self._idle_s = idle_s
        self._idle: dict[frozenset[tuple[str, Any]], tuple[T, float]] = {}
        """The idle clients, each with the time since when; the longest idle first."""

    def get(self, settings: Settings) -> T:
        """The one with these settings, for anybody; made if there is none."""
        with self.using(settings) as client:
            return client

    @contextlib.contextmanager
    def using(self, settings: Settings) -> Iterator[T]:
        """One with these settings, made if none is idle; an exception closes it for good."""
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
