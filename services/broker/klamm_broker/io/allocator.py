"""Configures the C library to keep freed memory for the next requests.

By default, glibc gets every buffer above 128 KiB from the kernel and returns it when it is freed. Each request and
answer of a megabyte then costs 256 page faults. With the settings here, freed pages are used again, and the amount of
kept memory is bounded.
"""

from __future__ import annotations

import ctypes

KEPT_MAX_BYTES = 64 * 1024**2
"""The free memory that each arena of the C library may keep."""
ARENAS_MAX = 4

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_MMAP_THRESHOLD_BYTES = 32 * 1024**2
"""The largest threshold that glibc accepts. Larger blocks still come from the kernel."""


def keep_request_memory() -> None:
    """Makes the C library keep freed memory for the next requests, in the whole process. Does nothing without
    mallopt."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
    mallopt(_M_TRIM_THRESHOLD, KEPT_MAX_BYTES)
    mallopt(_M_ARENA_MAX, ARENAS_MAX)
