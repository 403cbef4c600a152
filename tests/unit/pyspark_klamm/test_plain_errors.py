"""Tests how a worker of Spark reports errors: with Spark's own function, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from klamm.errors import ConfigError
from pyspark_klamm.plain_errors import HIDE_TRACEBACK, plain_errors

REPORT = """
import io, sys
from types import SimpleNamespace
sys.modules["__main__"].__spec__ = SimpleNamespace(name="pyspark.daemon")
from pyspark.util import handle_worker_exception
from klamm.errors import ConfigError
from pyspark_klamm.plain_errors import plain_errors
outfile = io.BytesIO()
try:
    with plain_errors():
        raise {error}("topic=1: expected a name")
except Exception as error:
    handle_worker_exception(error, outfile)
print(outfile.getvalue()[8:].decode())
"""


def reported(error: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", REPORT.format(error=error)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_an_error_of_ours_is_one_line():
    assert reported("ConfigError") == "klamm.errors.ConfigError: topic=1: expected a name"


def test_another_error_keeps_its_traceback():
    assert reported("RuntimeError").startswith("Traceback (most recent call last):")


def test_a_process_that_is_no_worker_of_spark_is_left_alone(monkeypatch):
    monkeypatch.delenv(HIDE_TRACEBACK, raising=False)
    with pytest.raises(ConfigError), plain_errors():
        raise ConfigError("wrong")
    assert HIDE_TRACEBACK not in os.environ
