"""The compiled core under AddressSanitizer and UndefinedBehaviorSanitizer, in a process of its own.

The sanitizers must be in a process before all else (LD_PRELOAD), and every object must have memory of its own
(PYTHONMALLOC)."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

from tools import build_core

# Python's own flags have -fwrapv. With it, the sanitizer does not report overflows, which C does not define.
FLAGS = "-O1 -g1 -fno-omit-frame-pointer -fno-wrapv -fsanitize=address,undefined -fno-sanitize-recover=undefined"
_LIBRARIES = ("libasan.so", "libubsan.so")


def sanitizers() -> list[pathlib.Path]:
    """Returns the libraries of gcc's sanitizers, or nothing if this machine does not have both."""
    compiler = shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        return []
    found = [
        pathlib.Path(
            subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
        )
        for name in _LIBRARIES
    ]
    return found if all(each.is_absolute() for each in found) else []


def missing() -> str | None:
    """Returns why the core cannot run under the sanitizers here, or None."""
    return None if sanitizers() else f"gcc has no {' or '.join(_LIBRARIES)} here"


def build(target: pathlib.Path, source: pathlib.Path = build_core.ROOT) -> None:
    """Compiles the core of `source` with the sanitizers into `target`. Raises RuntimeError."""
    problem = build_core.build(source, target, FLAGS)
    if problem is not None:
        raise RuntimeError(f"could not compile {source}/klamm/_core.pyx with the sanitizers: {problem}")


def environment() -> dict[str, str]:
    """Returns the environment of a process that calls `load`."""
    return {
        **os.environ,
        "LD_PRELOAD": " ".join(map(str, sanitizers())),
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(build_core.ROOT),
        "KLAMM_CORE": "compiled",
        "ASAN_OPTIONS": "detect_leaks=0:quarantine_size_mb=32",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def load(target: pathlib.Path) -> None:
    """Makes the core in `target` the one of this process. Call this before `klamm` is imported."""
    (path,) = build_core.compiled_files(target)
    spec = importlib.util.spec_from_file_location("klamm._core", path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules["klamm._core"] = module
    spec.loader.exec_module(module)
