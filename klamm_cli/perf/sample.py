"""The records that `klamm perf` sends: those of a topic of the user, or made of random letters. Pure."""

from __future__ import annotations

import itertools
import random
import string
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from klamm.records import Headers

RECORDS_MAX: Final = 20_000
BYTES_MAX: Final = 32_000_000
_LETTERS: Final = (string.ascii_uppercase.encode() * 10)[:256]
"""The capital letter of each value of a byte. To draw bytes takes a fiftieth of the time that drawing letters takes."""


class SampleRecord(NamedTuple):
    """The key, value and headers of one record."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @property
    def size_bytes(self) -> int:
        """The bytes of key, value and headers, without what the record format adds."""
        return sum(len(part) for part in (self.key, self.value, *_parts(self.headers)) if part is not None)


def _parts(headers: Headers) -> Iterator[bytes | None]:
    for name, value in headers:
        yield name.encode()
        yield value


class Sample:
    """The records that a measurement sends in turn. There is at least one."""

    def __init__(self, records: Iterable[SampleRecord]) -> None:
        self.records = tuple(records)
        assert self.records, "a sample without records"
        self._ends = tuple(itertools.accumulate((record.size_bytes for record in self.records), initial=0))

    @property
    def total_bytes(self) -> int:
        """The bytes of all its records. If they fit into a batch, the batch has them twice, and compresses too well."""
        return self._ends[-1]

    @property
    def mean_bytes(self) -> float:
        """The mean size of a record's key, value and headers."""
        return self._ends[-1] / len(self.records)

    def size_bytes(self, count: int) -> int:
        """Returns the bytes of the first `count` records that are sent."""
        rounds, rest = divmod(count, len(self.records))
        return rounds * self._ends[-1] + self._ends[rest]


def made_sample(size_bytes: int, rng: random.Random) -> Sample:
    """Returns records without keys whose values are random capital letters, like those of Kafka's
    kafka-producer-perf-test. Few of them are made if they are large."""
    count = max(1, min(RECORDS_MAX, BYTES_MAX // max(1, size_bytes)))
    return Sample(SampleRecord(None, rng.randbytes(size_bytes).translate(_LETTERS)) for _ in range(count))


def taken_sample(records: Iterable[SampleRecord]) -> list[SampleRecord]:
    """Returns the first of the records: at most RECORDS_MAX, and at most BYTES_MAX bytes but at least one record."""
    taken: list[SampleRecord] = []
    size_bytes = 0
    for record in records:
        size_bytes += record.size_bytes
        if len(taken) == RECORDS_MAX or (taken and size_bytes > BYTES_MAX):
            break
        taken.append(record)
    return taken
