"""Putting a segment that was written anew in the place of those it was made from, so that a crash leaves one or the
other: the output of compaction, or of a repair (`segment_rewrite.py`).

| step | on disk | a crash after it leaves |
|---|---|---|
| the output is written and synced | `N.log.cleaned`, and its indexes | the old segments (`leftovers.py`) |
| 1 the output is renamed, the log last | `N.log.swap` | the new segment: from here on recovery goes forward |
| 2 the old segments are renamed | `*.deleted` | the new segment |
| 3 the output gets its name, the log first | `N.log` | the new segment |

Renames in one directory reach the disk in the order they were made, on every journaling file system. The old files are
removed later, when nobody reads them any more (`file.delete.delay.ms`). Follows Kafka's `LocalLog.replaceSegments`.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm_broker.log.disk import Disk
from klamm_broker.log.segment import Segment

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
DELETED_SUFFIX = ".deleted"


def make_durable(disk: Disk, cleaned: Segment, *, modified_ms: int) -> None:
    """Seals the output and has the disk keep it. `modified_ms`: of the newest file that it replaces."""
    cleaned.seal()
    for path in cleaned.paths:
        disk.sync_path(path)
    # Retention looks at it where no record has a timestamp.
    disk.set_modified_ms(cleaned.path(), modified_ms)
    disk.fsync_directory(cleaned.directory)


def announce(disk: Disk, cleaned: Segment) -> None:
    """Step 1. If it fails there is nothing left of the output, and the OSError passes on."""
    cleaned_paths = cleaned.paths
    cleaned.file_suffix = SWAP_SUFFIX
    try:
        for source, target in zip(cleaned_paths, cleaned.paths, strict=True):
            disk.replace(source, target)
    except OSError:
        disk.remove([*cleaned_paths, *cleaned.paths])
        raise


def take_place(disk: Disk, cleaned: Segment, replaced: Sequence[Segment]) -> list[str]:
    """Steps 2 and 3; returns the paths that are to be removed. An OSError leaves the directory to recovery."""
    doomed = []
    for segment in replaced:
        for path in segment.paths:
            # A full disk may have kept an index from being written.
            if path == segment.path() or disk.exists(path):
                disk.replace(path, path + DELETED_SUFFIX)
                doomed.append(path + DELETED_SUFFIX)
    swap_paths = cleaned.paths
    cleaned.file_suffix = ""
    for source, target in reversed(list(zip(swap_paths, cleaned.paths, strict=True))):
        disk.replace(source, target)
    return doomed
