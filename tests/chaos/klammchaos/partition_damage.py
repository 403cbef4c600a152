"""Damage of bytes on a disk while the partitions are used. Brokers must find and repair it."""

from __future__ import annotations

import pathlib
import random
import time

from klamm.records.header import PREFIX_SIZE_BYTES, iter_headers
from tests.chaos.klammchaos.partition_cluster import DEADLINE_S, TOPIC
from tests.chaos.klammchaos.partition_strike import Act, PartitionStrike, Victims

FLIPS_MAX = 5


def flip_bytes(victims: Victims) -> Act:
    """Returns an act that flips bytes in a closed segment, at a place that a checksum covers. Readers would accept
    other damaged bytes until the broker finds them.

    The act then asks the broker to scrub its log. The broker must restore the segment."""

    async def act(strike: PartitionStrike) -> None:
        await strike.cluster.wait_whole()
        (broker,) = victims(strike)
        path = _closed_segment(strike.cluster.log_dir(broker), strike.rng)
        if path is None:
            print("no segment is closed yet", flush=True)
            return
        sound = path.read_bytes()
        _flip(path, sound, strike.rng)
        await strike.hold()
        until_s = time.monotonic() + DEADLINE_S
        # The broker skips a segment that is not on disk yet, or that no in-sync replica can repair. Ask again then.
        while path.exists() and path.read_bytes() != sound:
            assert time.monotonic() < until_s, f"{path} is damaged after {DEADLINE_S} s"
            await strike.cluster.scrub(broker)

    return act


def _closed_segment(log_dir: pathlib.Path, rng: random.Random) -> pathlib.Path | None:
    closed = [path for one in sorted(log_dir.glob(f"{TOPIC}-[0-9]*")) for path in sorted(one.glob("*.log"))[:-1]]
    return rng.choice(closed) if closed else None


def _flip(path: pathlib.Path, data: bytes, rng: random.Random) -> None:
    batches = list(iter_headers(data))
    with path.open("r+b") as file:
        for position, header in rng.sample(batches, min(len(batches), rng.randint(1, FLIPS_MAX))):
            at = position + rng.randrange(PREFIX_SIZE_BYTES, header.size_bytes)
            file.seek(at)
            file.write(bytes([data[at] ^ rng.randrange(1, 256)]))
    print(f"flipped bytes of {path.parent.name}/{path.name}", flush=True)
