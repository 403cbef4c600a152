"""Checks that the replicas of a partition are equal to the byte, in the directories of stopped brokers."""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import random
from collections.abc import Iterator, Mapping

from tests.chaos.klammchaos.replica_checks import DivergedError


def check_same_records(name: str, directories: Mapping[int, pathlib.Path]) -> int:
    """Compares the replicas of one partition. `directories` has the partition's directory by broker. Returns the size
    of each replica in bytes. Raises DivergedError if they differ."""
    logs = {broker: _records(directory) for broker, directory in directories.items()}
    if len(set(logs.values())) > 1:
        story = ", ".join(f"broker {broker}: {size} bytes, {digest}" for broker, (size, digest) in logs.items())
        raise DivergedError(f"the replicas of {name} differ: {story}")
    return next(iter(logs.values()))[0]


def differ(name: str, directories: Mapping[int, pathlib.Path]) -> bool:
    """Returns True if `check_same_records` finds a difference."""
    try:
        check_same_records(name, directories)
    except DivergedError:
        return True
    return False


@contextlib.contextmanager
def flipped_byte(directory: pathlib.Path, rng: random.Random) -> Iterator[None]:
    """Flips a bit in one byte of the records in the directory, and restores it at the end."""
    segment = rng.choice([one for one in sorted(directory.glob("*.log")) if one.stat().st_size])
    data = segment.read_bytes()
    at = rng.randrange(len(data))
    segment.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    try:
        yield
    finally:
        segment.write_bytes(data)


def _records(directory: pathlib.Path) -> tuple[int, str]:
    """Returns the size and digest of the records of all segments. Brokers may roll segments at different places."""
    size, digest = 0, hashlib.sha256()
    for segment in sorted(directory.glob("*.log")):
        data = segment.read_bytes()
        size += len(data)
        digest.update(data)
    return size, digest.hexdigest()
