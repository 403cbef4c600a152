"""`.kafka_cleanshutdown`: the broker that used this log dir last stopped in order, so nothing needs recovering.

    {"version":0,"brokerEpoch":17}

Removed as soon as a start has taken note of it: whatever happens then is a crash until the next orderly
stop. The broker epoch lets the controller see that no write of that epoch was lost (KIP-966). Follows
Kafka's `CleanShutdownFileHandler`.
"""

from __future__ import annotations

import json

from klamm_broker.log.files.disk import Disk

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
NO_BROKER_EPOCH = -1


def write_clean_shutdown(disk: Disk, log_dir: str, broker_epoch: int) -> None:
    """Leaves the marker, durably. Everything it vouches for must be on disk already. Raises OSError."""
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    disk.write_atomically(f"{log_dir}/{CLEAN_SHUTDOWN_FILE}", content.encode())


def take_clean_shutdown(disk: Disk, log_dir: str) -> int | None:
    """The broker epoch of the marker, which is removed; None if there is none.

    A marker that cannot be read still says that the stop was clean; its epoch is then -1. Raises OSError."""
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
