"""Files that were renamed and will be removed later."""

from __future__ import annotations

from dataclasses import dataclass

from klamm_broker.log.files.storage_failure import LogDir


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingDeletion:
    """Files that were renamed, and that a disk thread removes at `due_ms`."""

    log_dir: LogDir
    paths: tuple[str, ...]
    due_ms: int
