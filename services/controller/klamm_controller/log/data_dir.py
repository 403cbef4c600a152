"""The controller's data directory: it belongs to one node of one cluster, and one process has it open.

| file                | what                                                                        |
|---------------------|-----------------------------------------------------------------------------|
| `.lock`             | locked (flock) for as long as a process has the directory open, as Kafka's  |
| `meta.properties`   | version, cluster.id, node.id, as Kafka's                                    |
| `metadata.db/`      | the metadata log, and the directory id (log/raft_store.py)                  |
| `bootstrap.records` | what the log begins with, until it has begun (log/bootstrap.py)             |

A new directory is formatted once: `meta.properties` appears whole, by a rename, before anything else is written.
"""

from __future__ import annotations

import base64
import fcntl
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from klamm.errors import KlammError

_LOCK = ".lock"
_META = "meta.properties"
_STORE = "metadata.db"
_VERSION = "1"


def random_uuid() -> str:
    """A random UUID in URL-safe base64 without padding: 22 characters, as Kafka's `kafka-storage random-uuid`.

    Never begins with '-', which a command line would take for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


@dataclass(frozen=True, slots=True, kw_only=True)
class DataDir:
    """A directory that this process holds until `close`."""

    path: Path
    cluster_id: str
    lock: TextIO

    @property
    def store_path(self) -> Path:
        """Where the metadata log is."""
        return self.path / _STORE

    def close(self) -> None:
        """Lets another process have it."""
        self.lock.close()


def open_data_dir(path: Path, *, node_id: int, cluster_id: str) -> DataDir:
    """Locks the directory, and formats it when it is new (with `cluster_id`, or a random one when that is empty).

    Raises KlammError, in one line, when another process has it, when it is another node's or another
    cluster's, or when it cannot be written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / _LOCK).open("a")
    except OSError as error:
        raise KlammError(f"the data directory {path} cannot be used: {error.strerror}") from error
    try:
        _lock(lock, path)
        meta = _read_meta(path / _META)
        if meta is None:
            meta = _format(path, node_id, cluster_id or random_uuid())
        _check(path, meta, node_id, cluster_id)
        return DataDir(path=path, cluster_id=meta["cluster.id"], lock=lock)
    except BaseException:
        lock.close()
        raise


def _lock(lock: TextIO, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise KlammError(f"the data directory {path} is in use by another process") from error


def _read_meta(path: Path) -> dict[str, str] | None:
    try:
        text = path.read_text()
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


def _format(path: Path, node_id: int, cluster_id: str) -> dict[str, str]:
    if (path / _STORE).exists():
        raise KlammError(f"{path} has a metadata log but no {_META}, so its cluster and node are unknown")
    meta = {"version": _VERSION, "cluster.id": cluster_id, "node.id": str(node_id)}
    temporary = path / (_META + ".tmp")
    try:
        with temporary.open("w") as file:
            file.writelines(f"{key}={value}\n" for key, value in meta.items())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path / _META)
        _sync_directory(path)
    except OSError as error:
        raise KlammError(f"the data directory {path} cannot be formatted: {error.strerror}") from error
    return meta


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
