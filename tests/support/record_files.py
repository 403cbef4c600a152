"""Makes files of records, and counts how many of them are open."""

from __future__ import annotations

import asyncio
import os
import pathlib
import random

from klamm_broker.io.record_file import RecordFile
from klamm_broker.log.files.storage_failure import LogDir
from klamm_server.runtime.disk import Disk

FILE_BYTES = 5_000_000
CONTENT = random.Random(7).randbytes(FILE_BYTES)


class Files:
    """Makes record files of one real file, and knows how many are open."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.path = directory / "00000000000000000000.log"
        self.path.write_bytes(CONTENT)
        self.open_count = 0
        self._changed = asyncio.Event()

    def make(self, position: int, size_bytes: int) -> RecordFile:
        fd = os.open(self.path, os.O_RDONLY)
        log_dir = LogDir(str(self.path.parent))
        self.open_count += 1
        self._changed.set()
        return RecordFile(Disk(), log_dir, fd, position, size_bytes, on_close=self._on_close)

    async def until(self, open_count: int) -> None:
        while self.open_count != open_count:
            self._changed.clear()
            await self._changed.wait()

    def cut(self, size_bytes: int) -> None:
        """Leaves `size_bytes` bytes of the file."""
        os.truncate(self.path, size_bytes)

    def _on_close(self) -> None:
        self.open_count -= 1
        self._changed.set()
