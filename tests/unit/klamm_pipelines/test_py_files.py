"""The zip file for --py-files: all that an executor imports, and only once."""

from __future__ import annotations

import subprocess
import sys
import zipfile

from klamm_pipelines.py_files import PACKAGES, write_py_files


def test_what_executors_import_comes_out_of_the_zip_file(tmp_path):
    path = write_py_files(tmp_path / "klamm-spark.zip")
    program = (
        f"import sys; sys.path.insert(0, {str(path)!r})\n"
        "import klamm, klamm.wire.v1.broker_pb2, pyspark_klamm.source, pyspark_klamm.exactly_once\n"
        "import klamm_pipelines.catalog\n"
        "for name, module in sorted(sys.modules.items()):\n"
        f"    if name.partition('.')[0] in {PACKAGES!r}: print(module.__file__)\n"
    )
    found = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True).stdout
    assert len(found.splitlines()) > 50
    assert all(line.startswith(str(path)) for line in found.splitlines())


def test_equal_code_makes_equal_files(tmp_path):
    first, second = write_py_files(tmp_path / "1.zip"), write_py_files(tmp_path / "2.zip")
    assert first.read_bytes() == second.read_bytes()
    assert not [name for name in zipfile.ZipFile(first).namelist() if "__pycache__" in name]
