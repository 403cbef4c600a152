"""Compiles klamm/_core.pyx, the fast part of the client. Without a C compiler the client is pure Python.

Runs within hatchling's build hook (wheel and editable install), and alone: `python tools/build_core.py`.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

# In a process of its own, because setuptools and Cython change global state and may exit.
SCRIPT = """
import os, sys
from Cython.Build import cythonize
from setuptools import Extension, setup
flags = os.environ["KLAMM_CFLAGS"].split()
sanitizers = [flag for flag in flags if flag.startswith("-fsanitize=")]
extension = Extension("klamm._core", ["klamm/_core.pyx"], extra_compile_args=flags, extra_link_args=sanitizers)
setup(name="klamm-core", packages=[], py_modules=[], ext_modules=cythonize([extension], build_dir=sys.argv[1]),
      script_args=["build_ext", "--build-temp", *sys.argv[1:2], *sys.argv[2:]])
"""


def compiled_files(directory: pathlib.Path = ROOT) -> list[pathlib.Path]:
    """Returns the compiled modules in `directory`/klamm, by default those in the source tree."""
    package = directory / "klamm"
    return sorted([*package.glob("_core.*.so"), *package.glob("_core.*.pyd")])


def build(source: pathlib.Path = ROOT, target: pathlib.Path | None = None, flags: str | None = None) -> str | None:
    """Compiles `source`/klamm/_core.pyx into `target`/klamm, by default in place. `flags` are those of the compiler, by
    default the environment's KLAMM_CFLAGS. Returns None, or in one line why it could not."""
    place = ["--inplace"] if target is None else ["--build-lib", str(target)]
    directory = source if target is None else target
    for stale in compiled_files(directory):
        stale.unlink()
    if flags is None:
        flags = os.environ.get("KLAMM_CFLAGS", "/O2" if os.name == "nt" else "-O3 -g0")
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-c", SCRIPT, scratch, *place]
        environment = {**os.environ, "KLAMM_CFLAGS": flags}
        done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0 and compiled_files(directory):
        return None
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1] if lines else f"exit status {done.returncode}"


if __name__ == "__main__":
    problem = build()
    if problem is not None:
        sys.exit(f"klamm/_core.pyx was not compiled, so the client is pure Python: {problem}")
