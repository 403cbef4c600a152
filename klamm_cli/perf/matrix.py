"""The settings that `klamm perf` measures: every combination of the values that the user names. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from klamm.errors import ConfigError

ACKS: Final = ("all", "1", "0")
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_FSYNC: Final = {"no": False, "yes": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One combination of settings."""

    acks: str
    batch_size: int
    compression: str
    fsync: bool
    """True if the topic has flush.messages=1: each broker fsyncs each write before it acknowledges it."""

    @property
    def producer_settings(self) -> dict[str, object]:
        return {"acks": self.acks, "batch.size": self.batch_size, "compression.type": self.compression}

    def describe(self) -> str:
        """Returns the settings in one line."""
        fsync = ", fsync" if self.fsync else ""
        return f"acks={self.acks}, batch.size={self.batch_size}, {self.compression}{fsync}"


def parse_cells(*, acks: str, batch_sizes: str, compression: str, fsync: str) -> list[Cell]:
    """Returns all combinations of the values, which are separated by commas. Raises ConfigError if a value is
    unknown."""
    combinations = itertools.product(
        _choices(fsync, "--fsync", tuple(_FSYNC)),
        _choices(acks, "--acks", ACKS),
        _sizes(batch_sizes),
        _choices(compression, "--compression", CODECS),
    )
    return [
        Cell(fsync=_FSYNC[fsyncs], acks=each_acks, batch_size=size, compression=codec)
        for fsyncs, each_acks, size, codec in combinations
    ]


def _choices(text: str, option: str, known: Sequence[str]) -> list[str]:
    values = _values(text)
    for value in values:
        if value not in known:
            raise ConfigError(f"{option} {value!r}: expected some of {', '.join(known)}, separated by commas")
    return values


def _sizes(text: str) -> list[int]:
    values = _values(text)
    for value in values:
        if not (value.isascii() and value.isdecimal()):
            raise ConfigError(f"--batch-size {value!r}: expected numbers of bytes, separated by commas")
    return [int(value) for value in values]


def _values(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",")))
