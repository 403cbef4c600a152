"""Builds the Go programs of `tests/clients` into `build`, once until their sources change.

A test is skipped with a reason if `go` is missing or too old."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.build_lock import build_lock, run_build

ROOT = Path(__file__).parents[2]
USUAL_DIRECTORY = "/usr/local/go/bin"
"""The directory into which Go's own archives are unpacked. It is often not in the PATH."""
BUILD_TIMEOUT_S = 900


class GoProgram:
    """A program of one Go module in `tests/clients`: that of the module itself, or of another `package`."""

    def __init__(self, folder: str, package: str = ".") -> None:
        self._package = package
        self._sources = ROOT / "tests" / "clients" / folder
        self._built = ROOT / "build" / folder
        self._program = self._built / "clients"

    def command(self, *arguments: str) -> list[str]:
        """Returns the command that runs the program with these arguments. Skips the test if Go is missing or too
        old."""
        self._build_if_changed()
        return [str(self._program), *arguments]

    def sarama_version(self) -> str:
        """Returns the version of sarama that go.mod asks for."""
        return self._from_go_mod(r"github\.com/IBM/sarama v(\S+)")

    def _build_if_changed(self) -> None:
        go = shutil.which("go", path=f"{os.environ.get('PATH', '')}:{USUAL_DIRECTORY}")
        if go is None:
            pytest.skip("go not found: these tests need Go's toolchain")
        # A toolchain that go.mod does not accept must not fetch another one.
        environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
        asked, found = self._from_go_mod(r"^go (\S+)"), _version_of(go, environment)
        if _numbers(found) < _numbers(asked):
            pytest.skip(f"go is {found}, but go.mod needs {asked} or newer")
        with build_lock(self._built):
            newest = max(path.stat().st_mtime for path in self._sources.iterdir())
            if self._program.exists() and self._program.stat().st_mtime >= newest:
                return
            # A work tree of git needs no git program for this build.
            build = [go, "build", "-buildvcs=false", "-o", str(self._program), self._package]
            run_build(build, timeout_s=BUILD_TIMEOUT_S, folder=self._sources, environment=environment)
            # Go leaves a program as it is if only comments changed.
            self._program.touch()

    def _from_go_mod(self, pattern: str) -> str:
        found = re.search(pattern, (self._sources / "go.mod").read_text(), re.MULTILINE)
        assert found is not None, f"go.mod has no {pattern}"
        return found[1]


SARAMA = GoProgram("go")
"""The newest sarama, with all that a client does."""
SARAMA_1_45 = GoProgram("go_sarama_1_45")
"""sarama 1.45.0, which leaves the largest timestamp of a batch unset."""

GRPCURL = GoProgram("go_grpcurl", "github.com/fullstorydev/grpcurl/cmd/grpcurl")


def _version_of(go: str, environment: dict[str, str]) -> str:
    # Run outside of the module. Inside of it, an old toolchain stops at the line `go` of go.mod before it prints its
    # version.
    run = subprocess.run([go, "env", "GOVERSION"], cwd="/", env=environment, capture_output=True, text=True, check=True)
    return run.stdout.strip().removeprefix("go")


def _numbers(version: str) -> tuple[int, ...]:
    """Returns the leading numbers of a version such as 1.26.8 or 1.26rc1."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
