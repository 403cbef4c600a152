"""The files that this process has open, by their path, so that the files of other tests do not count."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path


def open_files(prefix: Path | str) -> Counter[str]:
    """Returns how often each file is open whose path begins with `prefix`, which is `pipe:` for pipes."""
    paths: Counter[str] = Counter()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # closed since it was listed
            continue
        if path.startswith(str(prefix)):
            paths[path] += 1
    return paths
