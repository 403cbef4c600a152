"""Tests the end of a Python process of Spark, with PySpark's own code of a worker."""

from __future__ import annotations

import subprocess
import sys

WORKER = """
import importlib, os, socket, sys
from types import SimpleNamespace
from pyspark.daemon import worker

sys.modules["__main__"].__spec__ = SimpleNamespace(name="pyspark.daemon")
os.environ["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "1"  # as Spark sets it
sys.argv = ["daemon", {module!r}]
importlib.import_module({module!r})
{then}
ours, sparks = socket.socketpair()
{spark_does}
worker(ours, True)
{then_read}
"""
PLANNER = "pyspark.sql.worker.plan_data_source_read"


def ended(
    module: str = PLANNER,
    *,
    then: str = "import pyspark_klamm",
    spark_does: str = "sparks.close()",
    then_read: str = "",
) -> subprocess.CompletedProcess[str]:
    program = WORKER.format(module=module, then=then, spark_does=spark_does, then_read=then_read)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_an_idle_planner_ends_without_a_traceback():
    done = ended()
    assert (done.returncode, done.stderr) == (0, "")


def test_an_idle_worker_of_tasks_ends_without_a_traceback():
    done = ended("pyspark.worker")
    assert (done.returncode, done.stderr) == (0, "")


def test_pyspark_itself_shows_one():
    assert "BrokenPipeError" in ended(then="").stderr


def test_an_error_is_reported_over_an_open_connection():
    done = ended(spark_does="sparks.sendall(b'\\0\\0\\0\\x032.7')", then_read="print(sparks.recv(10_000))")
    assert "PYTHON_VERSION_MISMATCH" in done.stdout
    assert done.stderr == ""


def test_a_process_of_the_user_is_left_alone():
    import pyspark.worker

    from pyspark_klamm import worker_process

    worker_process.correct_reports()
    assert not hasattr(pyspark.worker.handle_worker_exception, "__wrapped__")
