"""A Python process that has only the zip file for --py-files finds everything that an executor imports."""

from __future__ import annotations

import os
import subprocess
import sys

from klamm_pipelines.py_files import PACKAGES, write_py_files
from tests.support.waiting import patience


def test_executors_import_all_packages_from_the_zip_file(tmp_path):
    path = write_py_files(tmp_path / "klamm-spark.zip")
    program = (
        f"import sys; sys.path.insert(0, {str(path)!r})\n"
        "import klamm, klamm.wire.v1.broker_pb2, pyspark_klamm.source, pyspark_klamm.exactly_once\n"
        "import klamm_pipelines.catalog\n"
        "for name, module in sorted(sys.modules.items()):\n"
        f"    if name.partition('.')[0] in {PACKAGES!r}: print(module.__file__)\n"
    )
    command = [sys.executable, "-I", "-c", program]
    # The zip file is pure Python.
    environment = {name: text for name, text in os.environ.items() if name != "KLAMM_CORE"}
    found = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=patience()
    ).stdout
    assert len(found.splitlines()) > 50
    assert all(line.startswith(str(path)) for line in found.splitlines())
