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
"""Prometheus' default buckets, in seconds."""


class Counter:
    """A value that only grows."""

    def __init__(self) -> None:
        self._value: float = 0
        self._read: Callable[[], float] | None = None

    @property
    def value(self) -> float:
        return self._value if self._read is None else float(self._read())

    def inc(self, amount: float = 1) -> None:
        self._value += amount

    def set_function(self, read: Callable[[], float]) -> None:
        """Sets a function that returns the value, like a gauge's. The counter then has no other increments."""
        self._read = read


class Gauge:
    """A value that rises and falls."""

    def __init__(self) -> None:
        self._read: Callable[[], float] = float

    @property
    def value(self) -> float:
        return float(self._read())

    def set(self, value: float) -> None:
        self._read = lambda: value

    def set_function(self, read: Callable[[], float]) -> None:
        """Sets a function that returns the value. It is called when the metrics are read, in the thread that reads
        them."""
        self._read = read


class Histogram:
    """A histogram. `counts[n]` is the number of observations between bound n - 1 (exclusive) and `buckets[n]`. The last
    count has those above all bounds."""

    def __init__(self, buckets: Sequence[float]) -> None:
        self.buckets = tuple(buckets)
        self.counts = [0] * (len(self.buckets) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.buckets, value)] += 1
        self.sum += value


InstrumentT = TypeVar("InstrumentT", Counter, Gauge, Histogram)


class Family(Generic[InstrumentT]):
    """The instruments with one name: one for each combination of label values, or a single one without labels."""

    def __init__(self, name: str, text: str, label_names: Sequence[str], make: Callable[[], InstrumentT]) -> None:
        self.name = name
        self.text = text
        self.label_names = tuple(label_names)
        self._make: Callable[[], InstrumentT] = make
        self._instruments: dict[tuple[object, ...], InstrumentT] = {}
        FAMILIES.append(self)

    @property
    def kind(self) -> type[InstrumentT]:
        """The class of the instruments."""
        return type(self._make())

    def labels(self, *values: object) -> InstrumentT:
        """Returns the instrument for these label values, in the order of the label names. It is fast enough for every
        request."""
        instrument = self._instruments.get(values)
        if instrument is None:
            assert len(values) == len(self.label_names), (self.name, values)
            instrument = self._instruments[values] = self._make()
        return instrument

    def forget(self, *values: object) -> None:
        """Removes the instrument of these label values, because their subject is gone."""
        self._instruments.pop(values, None)

    def instruments(self) -> list[tuple[list[str], InstrumentT]]:
        """Returns all instruments with their label values. A member of an enumeration is shown by its name.

        It is safe while another thread adds instruments."""
        return [(list(map(_text, values)), instrument) for values, instrument in list(self._instruments.items())]


SERIES_MAX: Final = 10_000
"""The maximum number of series of one `Readings`. A scrape takes 12 µs of CPU for each series, and Prometheus stores
them all."""

Reading = tuple[Sequence[object], float]
"""The label values, in the order of the names, and the value."""


class Readings:
    """Gauges with one name whose values are looked up when the metrics are read, such as those of partitions and
    groups. So no code has to keep them up to date. Only the first SERIES_MAX are shown."""

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
"""All instruments of this process."""


def counters(name: str, text: str, label_names: Sequence[str]) -> Family[Counter]:
    """Makes counters with labels. Prometheus adds `_total` to the name."""
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
    """Makes histograms with labels. `buckets` are ascending upper bounds."""
    return Family(name, text, label_names, partial(Histogram, buckets))


def histogram(name: str, text: str) -> Histogram:
    """Makes a histogram without labels."""
    return histograms(name, text, ()).labels()
