"""Tests that the database of a simulated machine behaves as RocksDB, by random calls to both."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from klamm.errors import KlammError
from klamm_controller.log.database import Database, DiskFullError, WriteBatch
from klamm_controller.log.rocks_database import RocksDatabase
from tests.world.conformance.test_disk import simulated_disk
from tests.world.database import StoredKeys, database_opener

CALLS = 300
PATH = Path("/data/metadata.db")


def key(rng: random.Random) -> bytes:
    return b"%c%d" % (rng.choice(b"lms"), rng.randrange(20))


def write(rng: random.Random) -> Callable[[Database], object]:
    batch = WriteBatch()
    for _ in range(rng.randrange(4)):
        if rng.random() < 0.7:
            batch.put(key(rng), rng.randbytes(5))
        else:
            batch.delete_range(*sorted((key(rng), key(rng))))
    sync = rng.random() < 0.5
    return lambda database: database.write(batch, sync=sync)


def call(rng: random.Random) -> Callable[[Database], object]:
    """Returns a random call."""
    from_key, count, backwards = key(rng), rng.randrange(1, 10), rng.random() < 0.5
    match rng.randrange(4):
        case 0:
            return lambda database: database.get(from_key)
        case 1:
            return lambda database: list(islice(database.items(from_key, backwards=backwards), count))
        case _:
            return write(rng)


@pytest.mark.parametrize("seed", range(5))
def test_random_calls_have_the_results_of_rocksdb(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    with simulated_disk() as disk:
        open_simulated = database_opener(disk.files, {})
        real, simulated = RocksDatabase(tmp_path / "db"), open_simulated(PATH)
        for _ in range(CALLS):
            asked = call(rng)
            assert asked(real) == asked(simulated)
            if rng.random() < 0.02:
                real.close()
                simulated.close()
                real, simulated = RocksDatabase(tmp_path / "db"), open_simulated(PATH)
        real.close()
        simulated.close()


def test_a_database_is_open_once(tmp_path: Path) -> None:
    with simulated_disk() as disk:
        for path, open_database in ((tmp_path / "db", RocksDatabase), (PATH, database_opener(disk.files, {}))):
            database = open_database(path)
            with pytest.raises(KlammError, match="cannot open the metadata log"):
                open_database(path)
            database.close()
            open_database(path).close()


def test_a_loss_of_power_keeps_whole_batches_and_all_up_to_the_last_sync() -> None:
    seen = set()
    for seed in range(30):
        with simulated_disk() as disk:
            stored: dict[str, StoredKeys] = {}
            database = database_opener(disk.files, stored)(PATH)
            for number in range(4):
                batch = WriteBatch()
                batch.put(b"a%d" % number, b"x")
                batch.put(b"b%d" % number, b"x")
                database.write(batch, sync=number == 1)
            stored[str(PATH)].lose_power(random.Random(seed))
            keys = [found for found, _ in database_opener(disk.files, stored)(PATH).items(b"")]
            count = len(keys) // 2
            assert keys == [b"%c%d" % (letter, number) for letter in b"ab" for number in range(count)]
            seen.add(count)
    assert seen == {2, 3, 4}


def test_a_write_without_space_is_refused_whole() -> None:
    with simulated_disk() as disk:
        disk.files.capacity_bytes = 5
        database = database_opener(disk.files, {})(PATH)
        batch = WriteBatch()
        batch.put(b"key", b"value")
        with pytest.raises(DiskFullError):
            database.write(batch)
        assert database.get(b"key") is None
