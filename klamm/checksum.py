"""CRC-32C, the checksum of record batches and of the servers' files: `crc32c(data, former=0)`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any, Final


def _extension() -> Any:
    """Returns the C extension of the package `crc32c`, without importing the package itself.

    The package reads its own version with importlib.metadata, email and zipfile. That costs each process 20 ms and 3
    MB."""
    package = find_spec("crc32c")
    found = PathFinder.find_spec("_crc32c", package.submodule_search_locations) if package is not None else None
    if found is None or found.loader is None:
        # A release may have another layout, or no extension.
        import crc32c

        return crc32c
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


crc32c: Final[Callable[..., int]] = _extension().crc32c
