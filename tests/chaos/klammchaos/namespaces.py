"""Runs a whole run in its own mount and network namespaces of Linux. Its small disks and cables vanish when it ends.

The command `unshare` of util-linux makes the namespaces. It needs administrator rights or, where these are allowed, a
user namespace.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

_MARK: Final = "CHAOS_NAMESPACES"
_UNSHARE: Final = ("unshare", "--mount", "--net", "--propagation", "private")
_AS_USER: Final = ("--user", "--map-root-user")


class NotPossibleError(Exception):
    """This machine, or this user, cannot have namespaces. The text gives the reason."""


def enter() -> None:
    """Runs this program again in namespaces of its own, unless it runs in them. Returns if that is not possible."""
    if _MARK in os.environ:
        return
    for options in ((), _AS_USER):
        command = [*_UNSHARE, *options]
        refusal = _refusal([*command, "true"])
        if not refusal:
            os.execvpe(command[0], [*command, *sys.orig_argv], {**os.environ, _MARK: "1"})
    print(f"no namespaces: {refusal}", flush=True)


def require_own() -> None:
    """Raises NotPossibleError unless `enter` has succeeded."""
    if _MARK not in os.environ:
        raise NotPossibleError("it needs namespaces")


def run(*command: str) -> None:
    """Runs the command. Raises NotPossibleError with its output if it fails."""
    if refusal := _refusal(command):
        raise NotPossibleError(refusal)


def _refusal(command: Sequence[str]) -> str:
    """Returns the reason why the command fails. Empty if it does not fail."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    return (done.stderr.strip() or f"{command[0]} ended with {done.returncode}") if done.returncode else ""
