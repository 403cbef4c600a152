"""The controller's data directory. It belongs to one node of one cluster, and one process at a time has it open.

| file                | content                                                                     |
|---------------------|-----------------------------------------------------------------------------|
| `.lock`             | locked (flock) while a process has the directory open, as in Kafka          |
| `meta.properties`   | version, cluster.id, node.id, as in Kafka                                   |
| `metadata.db/`      | the metadata log, and the directory id (log/raft_store.py)                  |
| `bootstrap.records` | the log's first records, until the log has begun (log/bootstrap.py)         |

A new directory is formatted once. A rename creates the complete `meta.properties` before any other file is written.
"""

from __future__ import annotations

import base64
import os
import random
import uuid
from dataclasses import dataclass
from pathlib import Path

from klamm.errors import KlammError
from klamm_server.runtime.disk import Disk

_LOCK = ".lock"
_META = "meta.properties"
_STORE = "metadata.db"
_VERSION = "1"


def random_uuid(rng: random.Random) -> str:
    """Returns a random UUID in URL-safe base64 without padding: 22 characters, like Kafka's `kafka-storage
    random-uuid`.

    The UUID never begins with '-', because a command line would take it for an option."""
    while True:
        drawn = uuid.UUID(bytes=rng.randbytes(16), version=4)
        text = base64.urlsafe_b64encode(drawn.bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


@dataclass(frozen=True, slots=True, kw_only=True)
class DataDir:
    """A data directory that this process has locked until `close`."""

    path: Path
    cluster_id: str
    disk: Disk
    lock: int
    """The descriptor of the locked file."""

    @property
    def store_path(self) -> Path:
        """The path of the metadata log's store."""
        return self.path / _STORE

    def close(self) -> None:
        """Unlocks the directory, so that another process can open it."""
        self.disk.close(self.lock)


def open_data_dir(path: Path, *, node_id: int, cluster_id: str, disk: Disk, rng: random.Random) -> DataDir:
    """Locks the directory. Formats it if it is new, with `cluster_id`, or with a random id if `cluster_id` is empty.

    Raises KlammError with a one-line message if another process has the directory or if it cannot be written. Raises it
    also if the directory belongs to another node or cluster."""
    try:
        disk.make_directory(str(path))
        lock = disk.open(str(path / _LOCK), os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise KlammError(f"the data directory {path} cannot be used: {error.strerror}") from error
    try:
        _lock(disk, lock, path)
        meta = _read_meta(disk, path / _META)
        if meta is None:
            meta = _format(disk, path, node_id, cluster_id or random_uuid(rng))
        _check(path, meta, node_id, cluster_id)
        return DataDir(path=path, cluster_id=meta["cluster.id"], disk=disk, lock=lock)
    except BaseException:
        disk.close(lock)
        raise


def _lock(disk: Disk, lock: int, path: Path) -> None:
    try:
        disk.lock(lock)
    except OSError as error:
        raise KlammError(f"the data directory {path} is in use by another process") from error


def _read_meta(disk: Disk, path: Path) -> dict[str, str] | None:
    try:
        text = disk.read_file(str(path)).decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise KlammError(f"{path} cannot be read: {error}") from error
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}


def _check(path: Path, meta: dict[str, str], node_id: int, cluster_id: str) -> None:
    for key, expected in (("version", _VERSION), ("node.id", str(node_id)), ("cluster.id", cluster_id)):
        found = meta.get(key)
        if not found:
            raise KlammError(f"{path / _META} is damaged: {key} is missing")
        if expected and found != expected:
            raise KlammError(
                f"the data directory {path} belongs to {key}={found}, but the controller has {key}={expected}"
            )


def _format(disk: Disk, path: Path, node_id: int, cluster_id: str) -> dict[str, str]:
    if disk.exists(str(path / _STORE)):
        raise KlammError(f"{path} has a metadata log but no {_META}, so its cluster and node are unknown")
    meta = {"version": _VERSION, "cluster.id": cluster_id, "node.id": str(node_id)}
    try:
        disk.write_atomically(str(path / _META), "".join(f"{key}={value}\n" for key, value in meta.items()).encode())
    except OSError as error:
        raise KlammError(f"the data directory {path} cannot be formatted: {error.strerror}") from error
    return meta
