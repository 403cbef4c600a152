"""Tests the zip file for --py-files: equal code makes an equal file.

`tests/integration/spark/test_py_files_import.py` imports from it in a process.
"""

from __future__ import annotations

import zipfile

from klamm_pipelines.py_files import write_py_files


def test_equal_code_makes_equal_files(tmp_path):
    first, second = write_py_files(tmp_path / "1.zip"), write_py_files(tmp_path / "2.zip")
    assert first.read_bytes() == second.read_bytes()
    assert not [name for name in zipfile.ZipFile(first).namelist() if "__pycache__" in name]
