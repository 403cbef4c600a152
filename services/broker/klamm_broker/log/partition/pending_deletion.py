"""Files that are out of the way, and are removed later."""

from __future__ import annotations

from dataclasses import dataclass

from klamm_broker.log.files.storage_failure import LogDir


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingDeletion:
    """Files that were renamed out of the way and are to be removed, on a disk thread, at `due_ms`."""

    log_dir: LogDir
    paths: tuple[str, ...]
    due_ms: int
