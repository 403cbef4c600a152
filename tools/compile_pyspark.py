"""Puts bytecode into the archive from which Spark's Python workers import pyspark.

    python tools/compile_pyspark.py

The archive has sources alone, and Python keeps no bytecode of what it imports from an archive: every worker, and every
reader and writer of a stream, compiles a hundred modules when it starts. That is 1.3 s of CPU in place of 0.5 s, and
Spark gives a reader up that has not started within 10 s, which happens on a busy machine.
"""

from __future__ import annotations

import importlib.util
import pathlib
import py_compile
import tempfile
import warnings
import zipfile
from typing import Final

ARCHIVE: Final = pathlib.Path("python", "lib", "pyspark.zip")


def compile_archive(archive: pathlib.Path) -> None:
    """Writes the archive again with the bytecode of each module beside its source. Does nothing if the bytecode is
    there."""
    with zipfile.ZipFile(archive) as sources:
        names = sources.namelist()
        if any(name.endswith(".pyc") for name in names):
            return
        with tempfile.TemporaryDirectory(dir=archive.parent) as text:
            directory = pathlib.Path(text)
            sources.extractall(directory)
            compiled = directory / archive.name
            with zipfile.ZipFile(compiled, "w", zipfile.ZIP_DEFLATED) as made:
                for name in names:
                    _add(made, directory, name)
            compiled.replace(archive)


def _add(made: zipfile.ZipFile, directory: pathlib.Path, name: str) -> None:
    made.write(directory / name, name)
    if name.endswith(".py"):
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        bytecode = directory / f"{name}c"
        py_compile.compile(str(directory / name), cfile=str(bytecode), dfile=name, doraise=True, invalidation_mode=mode)
        made.write(bytecode, f"{name}c")


if __name__ == "__main__":
    warnings.simplefilter("ignore", SyntaxWarning)
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    compile_archive(pathlib.Path(found.origin).parent / ARCHIVE)
