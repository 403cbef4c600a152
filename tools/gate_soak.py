"""Runs `make test` four times on one clean clone, and prints whether each run passed, its time, and its flaky tests.

Run: python tools/gate_soak.py [--runs idle,user,busy,busy]

- `idle`: as root, with nothing beside it.
- `user`: the same as a new user without root's rights, who makes a virtual environment and is removed afterwards.
- `busy`: as root, beside eight loops that take the cores and a writer that fills the page cache.

Each run has a TMPDIR and a HOME of its own, new and empty. The clone holds what is committed. The tool needs root, and
an hour and a half. It ends with status 1 if a run failed, or if more than `MOST_FLAKY` tests of all runs had to
run a second time.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

ROOT: Final = pathlib.Path(__file__).resolve().parent.parent
KINDS: Final = ("idle", "user", "busy")
USER: Final = "klamm-soak"
USER_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
"""A new user's `PATH`. Root's may name programs in root's home, which no other user may read."""
MOST_FLAKY: Final = 2
LOOPS: Final = 8
FILLED_MIB: Final = 2_048
"""The size of the file that the writer writes again and again."""

_LOOP: Final = "while True: pass"
_WRITER: Final = f"""
import os, sys
while True:
    with open(sys.argv[1], "wb") as file:
        for _ in range({FILLED_MIB}):
            file.write(bytes(1 << 20))
    os.remove(sys.argv[1])
"""


class Ran(NamedTuple):
    """A run that has ended."""

    kind: str
    status: int
    took_s: float
    load: float
    """The machine's load average of the last five minutes at the end of the run."""
    counts: str
    """The counts that pytest prints, such as "10038 passed in 656.12s"."""
    flaky: list[str]


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--runs", default="idle,user,busy,busy", help="kinds of runs, in order (default: %(default)s)")
    kinds = parser.parse_args().runs.split(",")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"--runs: {', '.join(sorted(unknown))} unknown, expected {', '.join(KINDS)}")
    if os.geteuid() != 0:
        parser.error("needs root, for the run of another user")
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="klamm-soak-"))
    scratch.chmod(0o755)
    clone = scratch / "klamm"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    ran = []
    for number, kind in enumerate(kinds):
        ran.append(_run(kind, clone, scratch / f"{number}-{kind}"))
        print(_row(ran[-1]), flush=True)
    print("\n| run | result | tests | time | load | flaky |\n|---|---|---|---|---|---|")
    for one in ran:
        print(_row(one))
    if any(one.status for one in ran) or sum(len(one.flaky) for one in ran) > MOST_FLAKY:
        print(f"the logs are in {scratch}")
        return 1
    shutil.rmtree(scratch)
    return 0


def _run(kind: str, clone: pathlib.Path, directory: pathlib.Path) -> Ran:
    """Runs the tests with folders of its own, and returns the outcome."""
    home, temporary = directory / "home", directory / "tmp"
    for folder in (home, temporary):
        folder.mkdir(parents=True)
    environment = {**os.environ, "HOME": str(home), "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": ""}
    begin_s = time.monotonic()
    with contextlib.ExitStack() as stack:
        user = None
        if kind == "user":
            user = stack.enter_context(_user(directory, clone))
            environment["PATH"] = USER_PATH
        if kind == "busy":
            stack.enter_context(_load(directory))
        with (directory / "log").open("w") as log:
            done = subprocess.run(
                ["make", "test"],
                cwd=clone,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=user,
                group=user,
                extra_groups=[] if user else None,
            )
        took_s, load = time.monotonic() - begin_s, os.getloadavg()[1]
    text = (directory / "log").read_text(errors="replace")
    counts = re.findall(r"^=* ?(\d+ (?:passed|failed|error).*? in [\d.]+s)", text, re.MULTILINE)
    flaky = re.findall(r"^FLAKY .*: (tests/\S+)$", text, re.MULTILINE)
    return Ran(kind, done.returncode, took_s, load, counts[-1] if counts else "no tests", flaky)


@contextlib.contextmanager
def _user(directory: pathlib.Path, clone: pathlib.Path) -> Iterator[str]:
    """Makes a user for the block. The user owns the clone, without root's environment, and the folders of the run."""
    shutil.rmtree(clone / ".venv", ignore_errors=True)
    subprocess.run(["useradd", "--no-create-home", USER], check=True)
    try:
        subprocess.run(["chown", "-R", f"{USER}:", directory, clone], check=True)
        yield USER
    finally:
        subprocess.run(["chown", "-R", "root:", directory, clone], check=True)
        subprocess.run(["userdel", USER], check=True)


@contextlib.contextmanager
def _load(directory: pathlib.Path) -> Iterator[None]:
    """Takes the cores and the page cache from the tests that run in the block."""
    commands = [[sys.executable, "-c", _LOOP]] * LOOPS
    commands.append([sys.executable, "-c", _WRITER, str(directory / "filled")])
    processes = [subprocess.Popen(command) for command in commands]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def _row(one: Ran) -> str:
    result = "green" if one.status == 0 else f"red ({one.status})"
    took = f"{one.took_s // 60:.0f}:{one.took_s % 60:02.0f}"
    return f"| {one.kind} | {result} | {one.counts} | {took} | {one.load:.1f} | {', '.join(one.flaky) or 'none'} |"


if __name__ == "__main__":
    sys.exit(main())
