"""Installs the working tree, or a commit, as a user does: from its wheel, into a directory of its own."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tarfile
import tempfile

from bench.servers import ROOT

PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


def head() -> str:
    """The commit that is checked out."""
    return _git("rev-parse", "HEAD").decode().strip()


def is_clean() -> bool:
    """Whether the working tree is that of the commit."""
    return not _git("status", "--porcelain")


def install(commit: str | None, directory: pathlib.Path) -> str:
    """Installs that commit, or the working tree for None. Returns the PYTHONPATH from which it runs.

    Raises SystemExit if the repository does not have the commit, as in a clone without history.
    """
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as scratch:
        sources = ROOT if commit is None else _unpack(commit, pathlib.Path(scratch, "sources"))
        wheels = pathlib.Path(scratch, "wheels")
        build = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(sources)]
        subprocess.run(build, check=True)
        (wheel,) = wheels.glob("*.whl")
        subprocess.run([*PIP, "install", "--no-deps", "--target", str(directory), str(wheel)], check=True)
    return str(directory)


def _unpack(commit: str, directory: pathlib.Path) -> pathlib.Path:
    directory.mkdir()
    archive = directory.with_suffix(".tar")
    try:
        archive.write_bytes(_git("archive", commit))
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"no commit {commit} in this repository: fetch it, or name another with --base") from error
    with tarfile.open(archive) as tar:
        tar.extractall(directory, filter="data")
    return directory


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True).stdout
