"""Klamm as one zip file for spark-submit's --py-files: client library, connector and pipelines, all plain Python."""

from __future__ import annotations

import importlib.util
import pathlib
import zipfile
from typing import Final

PACKAGES: Final = ("klamm", "pyspark_klamm", "klamm_pipelines")
_SUFFIXES: Final = (".py", ".pyi")
"""The stubs have the names that packages load on first use."""
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The timestamp of every file in the zip file, so that equal code makes equal zip files."""


def write_py_files(target: pathlib.Path) -> pathlib.Path:
    """Writes the zip file; returns its path. Raises OSError."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            root = _directory(package)
            for path in sorted(path for path in root.rglob("*.py*") if path.suffix in _SUFFIXES):
                entry = zipfile.ZipInfo(f"{package}/{path.relative_to(root).as_posix()}", _EPOCH)
                archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return target


def _directory(package: str) -> pathlib.Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None, package
    assert spec.origin is not None, package
    return pathlib.Path(spec.origin).parent
