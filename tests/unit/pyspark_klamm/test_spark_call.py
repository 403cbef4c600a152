"""Tests how a worker of Spark reports errors, with Spark's own function, and which objects it freezes. Each test has a
process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from klamm.errors import ConfigError
from pyspark_klamm.spark_call import HIDE_TRACEBACK, spark_call

REPORT = """
import io, sys
from types import SimpleNamespace
sys.modules["__main__"].__spec__ = SimpleNamespace(name="pyspark.daemon")
from pyspark.util import handle_worker_exception
from klamm.errors import ConfigError
from pyspark_klamm.spark_call import spark_call
outfile = io.BytesIO()
try:
    with spark_call():
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
    with pytest.raises(ConfigError), spark_call():
        raise ConfigError("wrong")
    assert HIDE_TRACEBACK not in os.environ


FREEZE = """
import gc, sys
from types import SimpleNamespace
sys.modules["__main__"].__spec__ = SimpleNamespace(name={main!r})
from pyspark_klamm.spark_call import spark_call
counts = [gc.get_freeze_count()]
for module in ("json", "json", "wave"):
    with spark_call():
        __import__(module)
    counts.append(gc.get_freeze_count())
print(*counts)
"""


def freeze_counts(main: str) -> list[int]:
    done = subprocess.run([sys.executable, "-c", FREEZE.format(main=main)], capture_output=True, text=True, check=True)
    return [int(count) for count in done.stdout.split()]


def test_a_call_that_loads_modules_freezes_their_objects_and_another_call_freezes_nothing():
    before, first, second, third = freeze_counts("pyspark.daemon")
    assert before == 0
    assert first == second > 1_000
    assert third > second


def test_a_process_that_is_no_worker_of_spark_freezes_nothing():
    assert freeze_counts("program") == [0, 0, 0, 0]
