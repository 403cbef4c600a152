"""A file system of a known size for each node, which a file can fill."""

from __future__ import annotations

import os
import pathlib
from typing import Final

from tests.chaos.klammchaos import namespaces

_BLOCK: Final = bytes(64 << 10)


class SmallDisk:
    """A file system of the given `size`, such as "48m". It is mounted at `directory`, which must exist, in the run's
    own namespace.

    Raises NotPossibleError."""

    def __init__(self, directory: pathlib.Path, size: str) -> None:
        namespaces.require_own()
        namespaces.run("mount", "-t", "tmpfs", "-o", f"size={size}", "klamm-chaos", str(directory))
        self.directory = directory
        self._filler = directory / "filler"

    def fill(self, except_bytes: int) -> None:
        """Fills the disk, and leaves about `except_bytes` of space."""
        with self._filler.open("wb", buffering=0) as filler:
            try:
                while filler.write(_BLOCK) == len(_BLOCK):
                    pass
            except OSError:
                pass
            size = filler.tell()
        os.truncate(self._filler, max(0, size - except_bytes))

    def free(self) -> None:
        """Frees the space again."""
        self._filler.unlink(missing_ok=True)
