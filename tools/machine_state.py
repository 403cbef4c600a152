"""Prints what a run of the tests begins with: the commit, the machine, and what an earlier run left on it.

Run: python3 tools/machine_state.py

It needs nothing but Python, because it runs before anything is installed.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIB = 1 << 20
SHOWN_MAX = 10
"""Lines of each kind of leftovers that are shown."""


def main() -> None:
    """See the module."""
    temporary = tempfile.gettempdir()
    print(f"commit: {_output('git', 'log', '-1', '--format=%h %s')}")
    print(f"cores: {os.cpu_count()}, load: {' '.join(f'{load:.1f}' for load in os.getloadavg())}")
    free_mib = shutil.disk_usage(temporary).free // MIB
    print(f"free memory: {_free_memory_mib()} MiB, free disk at {temporary}: {free_mib} MiB")
    left = {"processes": processes(), "mounts": mounts(temporary), "network namespaces": namespaces()}
    for kind, lines in left.items():
        found = list(lines)
        print(f"{kind} of an earlier run: {len(found) or 'none'}")
        for line in found[:SHOWN_MAX]:
            print(f"    {line}")


def processes() -> Iterator[str]:
    """Klamm's processes, tests and container engines that run on this machine."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        program = pathlib.Path(words[0]).name
        if program in ("dockerd", "containerd") or program.startswith("klamm") or _is_ours(words):
            yield f"{process.name} {' '.join(words)[:120].strip()}"


def mounts(temporary: str) -> Iterator[str]:
    """Mounts below the folder of temporary files."""
    path = pathlib.Path("/proc/mounts")
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.split()[1].startswith(f"{temporary}/"):
            yield line


def namespaces() -> Iterator[str]:
    """Named network namespaces."""
    path = pathlib.Path("/run/netns")
    yield from sorted(each.name for each in path.iterdir()) if path.exists() else ()


def _is_ours(words: list[str]) -> bool:
    return "python" in words[0] and any(word in ("klamm", "pytest") or word.startswith("klamm_") for word in words[1:])


def _free_memory_mib() -> str:
    path = pathlib.Path("/proc/meminfo")
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.startswith("MemAvailable:"):
            return str(int(line.split()[1]) // 1024)
    return "unknown"


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"unknown ({error})"


if __name__ == "__main__":
    main()
