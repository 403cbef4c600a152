"""The instruments of a process: counters, gauges and histograms of Prometheus. `prometheus.py` exports them.

A module that measures makes its instruments once, at import. Each is in FAMILIES from then on. One thread changes an
instrument, and any thread may read it. This module does not use prometheus_client, so that a process without a scraper
need not load it. With its HTTP server, that library takes 20 ms and 3 MB.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from itertools import islice
from typing import Any, Final, Generic, TypeVar

DEFAULT_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Prometheus', in seconds."""


class Counter:
    """A value that only grows."""

    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, amount: float = 1) -> None:
        self.value += amount


class Gauge:
    """Goes up and down."""

    def __init__(self) -> None:
        self._read: Callable[[], float] = float

    @property
    def value(self) -> float:
        return float(self._read())

    def set(self, value: float) -> None:
        self._read = lambda: value

    def set_function(self, read: Callable[[], float]) -> None:
        """Asked whenever the metrics are read, in the thread that reads them."""
        self._read = read


class Histogram:
    """`counts[n]` observations were at most `buckets[n]` and more than the bound before; the last ones exceed all."""

    def __init__(self, buckets: Sequence[float]) -> None:
        self.buckets = tuple(buckets)
        self.counts = [0] * (len(self.buckets) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.buckets, value)] += 1
        self.sum += value


InstrumentT = TypeVar("InstrumentT", Counter, Gauge, Histogram)


class Family(Generic[InstrumentT]):
    """The instruments of one name: one per combination of its labels' values, or the only one of a name without."""

    def __init__(self, name: str, text: str, label_names: Sequence[str], make: Callable[[], InstrumentT]) -> None:
        self.name = name
        self.text = text
        self.label_names = tuple(label_names)
        self._make: Callable[[], InstrumentT] = make
        self._instruments: dict[tuple[object, ...], InstrumentT] = {}
        FAMILIES.append(self)

    @property
    def kind(self) -> type[InstrumentT]:
        """The class of its instruments."""
        return type(self._make())

    def labels(self, *values: object) -> InstrumentT:
        """The instrument of these values, in the order of the names; fast enough to be asked for each request."""
        instrument = self._instruments.get(values)
        if instrument is None:
            assert len(values) == len(self.label_names), (self.name, values)
            instrument = self._instruments[values] = self._make()
        return instrument

    def forget(self, *values: object) -> None:
        """What they were about is gone: nothing more is shown of it."""
        self._instruments.pop(values, None)

    def instruments(self) -> list[tuple[list[str], InstrumentT]]:
        """All of them with their labels' values, an enumeration's member by its name.

        Safe while another thread adds some."""
        return [(list(map(_text, values)), instrument) for values, instrument in list(self._instruments.items())]


SERIES_MAX: Final = 10_000
"""The most series of one `Readings`: a scrape takes 12 µs of CPU for each, and Prometheus keeps every one of them."""

Reading = tuple[Sequence[object], float]
"""Labels' values, in the order of the names, and the value."""


class Readings:
    """Gauges of one name that are looked up whenever the metrics are read: those of partitions and groups, of which
    nobody wants to keep account. The first SERIES_MAX are shown."""

    def __init__(self, name: str, text: str, label_names: Sequence[str]) -> None:
        self.name = name
        self.text = text
        self.label_names = tuple(label_names)
        self._read: Callable[[], Iterable[Reading]] = tuple
        FAMILIES.append(self)

    def set_function(self, read: Callable[[], Iterable[Reading]]) -> None:
        """Sets the function that returns the readings, like a gauge's. It returns each combination of labels once."""
        self._read = read

    def read(self) -> tuple[list[tuple[list[str], float]], bool]:
        """Returns the readings to show now, and whether some were left out."""
        found = iter(self._read())
        shown = [(list(map(_text, values)), value) for values, value in islice(found, SERIES_MAX)]
        return shown, next(found, None) is not None


def _text(label: object) -> str:
    return label.name if isinstance(label, Enum) else str(label)


FAMILIES: Final[list[Family[Any] | Readings]] = []
"""All of this process."""


def counters(name: str, text: str, label_names: Sequence[str]) -> Family[Counter]:
    """Prometheus adds `_total` to the name."""
    return Family(name, text, label_names, Counter)


def counter(name: str, text: str) -> Counter:
    """Makes a counter without labels."""
    return counters(name, text, ()).labels()


def gauges(name: str, text: str, label_names: Sequence[str]) -> Family[Gauge]:
    return Family(name, text, label_names, Gauge)


def gauge(name: str, text: str) -> Gauge:
    """Makes a gauge without labels."""
    return gauges(name, text, ()).labels()


def histograms(
    name: str, text: str, label_names: Sequence[str], buckets: Sequence[float] = DEFAULT_BUCKETS
) -> Family[Histogram]:
    """`buckets` are upper bounds in rising order."""
    return Family(name, text, label_names, partial(Histogram, buckets))


def histogram(name: str, text: str) -> Histogram:
    """Makes a histogram without labels."""
    return histograms(name, text, ()).labels()
