"""Compiles klamm/_core.pyx, the fast part of the client, in place. Without a C compiler the client is pure Python.

Runs within hatchling's build hook (wheel and editable install), and alone: `python tools/build_core.py`.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "klamm" / "_core.pyx"

# In a process of its own, because setuptools and Cython change global state and may exit.
SCRIPT = """
import os, sys
from Cython.Build import cythonize
from setuptools import Extension, setup
extension = Extension("klamm._core", ["klamm/_core.pyx"], extra_compile_args=os.environ.get("KLAMM_CFLAGS", "").split())
setup(name="klamm-core", packages=[], py_modules=[], ext_modules=cythonize([extension], build_dir=sys.argv[1]),
      script_args=["build_ext", "--inplace", "--build-temp", sys.argv[1]])
"""


def compiled_files() -> list[pathlib.Path]:
    """Returns the compiled modules in the source tree."""
    return sorted([*SOURCE.parent.glob("_core.*.so"), *SOURCE.parent.glob("_core.*.pyd")])


def build() -> str | None:
    """Compiles the module in place. Returns None, or in one line why it could not."""
    for stale in compiled_files():
        stale.unlink()
    options = "/O2" if os.name == "nt" else "-O3 -g0"
    environment = {**os.environ, "KLAMM_CFLAGS": os.environ.get("KLAMM_CFLAGS", options)}
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-c", SCRIPT, scratch]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0 and compiled_files():
        return None
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1] if lines else f"exit status {done.returncode}"


if __name__ == "__main__":
    problem = build()
    if problem is not None:
        sys.exit(f"klamm/_core.pyx was not compiled, so the client is pure Python: {problem}")
