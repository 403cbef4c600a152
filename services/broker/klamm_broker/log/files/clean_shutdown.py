"""`.kafka_cleanshutdown`: the marker that the last broker on this log directory shut down cleanly, without recovery.

    {"version":0,"brokerEpoch":17}

The next start reads and removes the marker. From then on, every end of the process counts as a crash until the next
clean shutdown. With the broker epoch, the controller checks that no write of that epoch was lost (KIP-966). Follows
Kafka's `CleanShutdownFileHandler`.
"""

from __future__ import annotations

import json

from klamm_server.runtime.disk import Disk

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
NO_BROKER_EPOCH = -1


def write_clean_shutdown(disk: Disk, log_dir: str, broker_epoch: int) -> None:
    """Writes the marker durably. All data of the log directory must be on disk before. Raises OSError."""
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    disk.write_atomically(f"{log_dir}/{CLEAN_SHUTDOWN_FILE}", content.encode())


def take_clean_shutdown(disk: Disk, log_dir: str) -> int | None:
    """Removes the marker and returns its broker epoch, or None without a marker.

    An unreadable marker still means a clean shutdown. Its epoch is -1. Raises OSError."""
    path = f"{log_dir}/{CLEAN_SHUTDOWN_FILE}"
    if not disk.exists(path):
        return None
    data = disk.read_file(path)
    disk.remove([path])
    disk.fsync_directory(log_dir)
    try:
        return int(json.loads(data)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return NO_BROKER_EPOCH
