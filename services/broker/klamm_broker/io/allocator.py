"""Tells the C library to keep the memory of requests for the next ones.

By default glibc gets every buffer beyond 128 KiB from the kernel and gives it back at once, so that each request
and answer of a megabyte pays for 256 page faults. Kept, the same pages serve again; how much may be kept is
bounded.
"""

from __future__ import annotations

import ctypes

KEPT_MAX_BYTES = 64 * 1024**2
"""Free memory that each of the library's arenas may hold on to."""
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
