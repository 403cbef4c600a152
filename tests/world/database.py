"""A database of a controller's log in a simulated machine: `klamm_controller.log.database.Database`.

It keeps what RocksDB promises: a batch is there whole or not at all, and a loss of power keeps a prefix of the batches
since the last sync.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from klamm.errors import KlammError
from klamm_controller.log.database import DiskFullError, Put, WriteBatch
from tests.world.file_system import FileSystem


class StoredKeys:
    """The keys and values in a directory. They stay there when no process has the database open."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.keys: list[bytes] = []
        self.opened_by: object = None
        self._durable: dict[bytes, bytes] = {}
        self._unsynced: list[WriteBatch] = []

    def apply(self, batch: WriteBatch) -> None:
        self._unsynced.append(batch)
        for write in batch.writes:
            if isinstance(write, Put):
                if write.key not in self.values:
                    bisect.insort(self.keys, write.key)
                self.values[write.key] = write.value
                continue
            first, end = bisect.bisect_left(self.keys, write.begin), bisect.bisect_left(self.keys, write.end)
            for key in self.keys[first:end]:
                del self.values[key]
            del self.keys[first:end]

    def sync(self) -> None:
        self._durable = dict(self.values)
        self._unsynced.clear()

    def lose_power(self, rng: random.Random) -> int:
        """Forgets the batches since the last sync, but for a prefix. Returns the number of lost batches."""
        unsynced, kept = self._unsynced, rng.randint(0, len(self._unsynced))
        self.values, self.keys, self._unsynced = dict(self._durable), sorted(self._durable), []
        for batch in unsynced[:kept]:
            self.apply(batch)
        self.sync()
        self.opened_by = None
        return len(unsynced) - kept


class SimDatabase:
    """An open database."""

    def __init__(self, stored: StoredKeys, files: FileSystem) -> None:
        self._stored = stored
        self._files = files

    def get(self, key: bytes) -> bytes | None:
        return self._stored.values.get(key)

    def items(self, from_key: bytes, *, backwards: bool = False) -> Iterator[tuple[bytes, bytes]]:
        stored = self._stored
        if backwards:
            chosen = stored.keys[: bisect.bisect_right(stored.keys, from_key)][::-1]
        else:
            chosen = stored.keys[bisect.bisect_left(stored.keys, from_key) :]
        return iter([(key, stored.values[key]) for key in chosen])

    def write(self, batch: WriteBatch, *, sync: bool = True) -> None:
        size_bytes = sum(len(write[0]) + len(write[1]) for write in batch.writes)
        files = self._files
        files.call("write", 20)
        if files.used_bytes + size_bytes > files.capacity_bytes:
            raise DiskFullError("the metadata log has no space")
        self._stored.apply(batch)
        if sync:
            files.call("sync", files.sync_cost_us())
            self._stored.sync()

    def close(self) -> None:
        self._stored.opened_by = None


def database_opener(files: FileSystem, stored: dict[str, StoredKeys]) -> Callable[[Path], SimDatabase]:
    """Returns what opens the databases of a machine for its process. `stored` are those by their paths."""

    def open_database(path: Path) -> SimDatabase:
        process = files.world.current
        assert process is not None, "only a process opens a database"
        keys = stored.setdefault(str(path), StoredKeys())
        if keys.opened_by is not None:
            raise KlammError(f"cannot open the metadata log in {path}: another process has it open")
        keys.opened_by = process
        process.at_death.append(lambda: _release(keys, process))
        return SimDatabase(keys, files)

    return open_database


def _release(keys: StoredKeys, process: object) -> None:
    if keys.opened_by is process:
        keys.opened_by = None
