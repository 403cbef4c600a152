"""Makes the environment of Quix Streams in `build/quix`, once until its lock changes.

Quix Streams needs another confluent-kafka than the tests, so it cannot be in their environment."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.support.build_lock import build_lock, run_build

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "tests" / "clients" / "quix" / "requirements.lock"
BUILT = ROOT / "build" / "quix"
PYTHON = BUILT / "venv" / "bin" / "python"
MAKE_TIMEOUT_S = 240


def command(script: Path, *arguments: str) -> list[str]:
    """Returns the command that runs a script in the environment. Raises AssertionError if it cannot be made."""
    _make_if_changed()
    return [str(PYTHON), str(script), *arguments]


def version() -> str:
    """Returns the version of Quix Streams in the lock."""
    found = re.search(r"^quixstreams==(\S+)", LOCK.read_text(), re.MULTILINE)
    assert found is not None, f"{LOCK} has no quixstreams"
    return found[1]


def _make_if_changed() -> None:
    with build_lock(BUILT):
        stamp = BUILT / ".made"
        wanted = f"{sys.version}\n{LOCK.read_text()}"
        if stamp.exists() and stamp.read_text() == wanted:
            return
        stamp.unlink(missing_ok=True)
        # Packages of an older lock must not stay, so the environment is made again.
        run_build([sys.executable, "-m", "venv", "--clear", str(PYTHON.parents[1])], timeout_s=MAKE_TIMEOUT_S)
        pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run_build([*pip, "--require-hashes", "--no-deps", "-r", str(LOCK)], timeout_s=MAKE_TIMEOUT_S)
        stamp.write_text(wanted)
