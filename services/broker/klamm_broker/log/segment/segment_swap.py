"""Replaces segments by the segment that a compaction or a repair has made from them (`segment_rewrite.py`).

A crash leaves either the old segments or the new one.

| step | on disk | a crash after it leaves |
|---|---|---|
| the output is written and synced | `N.log.cleaned`, and its indexes | the old segments (`leftovers.py`) |
| 1 the output is renamed, the log last | `N.log.swap` | the new segment, because recovery completes the swap |
| 2 the old segments are renamed | `*.deleted` | the new segment |
| 3 the output gets its name, the log first | `N.log` | the new segment |

Renames in one directory reach the disk in the order they were made, on every journaling file system. The old files are
removed later, when no reader uses them any more (`file.delete.delay.ms`). Follows Kafka's `LocalLog.replaceSegments`.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm_broker.log.segment.segment import Segment
from klamm_server.runtime.disk import Disk


def make_durable(disk: Disk, cleaned: Segment, *, modified_ms: int) -> None:
    """Seals and syncs the output. `modified_ms` is the modification time of the newest file that it replaces."""
    cleaned.seal()
    files = cleaned.files
    for path in files.paths:
        disk.sync_path(path)
    # Retention uses this time if no record has a timestamp.
    disk.set_modified_ms(files.path(), modified_ms)
    disk.fsync_directory(files.directory)


def announce(disk: Disk, cleaned: Segment) -> None:
    """Runs step 1. If it fails, it removes the output and raises the OSError."""
    cleaned_paths = cleaned.files.paths
    cleaned.announce()
    try:
        for source, target in zip(cleaned_paths, cleaned.files.paths, strict=True):
            disk.replace(source, target)
    except OSError:
        disk.remove(cleaned_paths)
        cleaned.delete()
        raise


def take_place(disk: Disk, cleaned: Segment, replaced: Sequence[Segment]) -> list[str]:
    """Runs steps 2 and 3. Returns the paths to remove. After an OSError, recovery must complete the replacement."""
    doomed = [path for segment in replaced for path in segment.files.rename_deleted()]
    swap_paths = cleaned.files.paths
    cleaned.take_place()
    for source, target in reversed(list(zip(swap_paths, cleaned.files.paths, strict=True))):
        disk.replace(source, target)
    return doomed
