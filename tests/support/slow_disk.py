"""`klamm` with a slow disk: `python -m tests.support.slow_disk GATE up ...` runs `klamm up ...`.

While the file GATE exists, the page cache seems empty, and threads that read from the disk wait."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from klamm_cli.main import main
from klamm_server.runtime.disk import Disk

PAUSE_S = 0.01


def slow_down(gate: Path) -> None:
    """Makes every disk of this process slow."""
    preadv, read_all = Disk.preadv, Disk.read_all

    def preadv_slowly(fd: int, buffers: Sequence[memoryview], position: int, flags: int) -> int:
        if gate.exists():
            raise BlockingIOError(f"{gate} exists")
        return preadv(fd, buffers, position, flags)

    def read_all_slowly(disk: Disk, fd: int, size_bytes: int, position: int = 0) -> bytes:
        while gate.exists() and threading.current_thread() is not threading.main_thread():
            time.sleep(PAUSE_S)
        return read_all(disk, fd, size_bytes, position)

    for name, slow in {"preadv": staticmethod(preadv_slowly), "read_all": read_all_slowly}.items():
        setattr(Disk, name, slow)


if __name__ == "__main__":
    slow_down(Path(sys.argv.pop(1)))
    main()
