"""Opens a Spark session for a pipeline, as spark-submit does: a setting says where it runs, and Klamm's code is
shipped.

On a cluster the workers' Python is $PYSPARK_PYTHON (by default this one, for clusters on one machine), and has to
have Klamm's and the connector's dependencies; Klamm itself is shipped as one zip file.
"""

from __future__ import annotations

import atexit
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING

from klamm_pipelines.py_files import write_py_files
from pyspark_klamm.java import java_home
from pyspark_klamm.local import SETTINGS, local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERYWHERE = (
    "spark.sql.session.timeZone",
    "spark.ui.showConsoleProgress",
    "spark.python.unix.domain.socket.enabled",
    "spark.redaction.regex",
    "spark.sql.redaction.options.regex",
)
"""The settings of local sessions that also apply on a cluster."""


def open_session(name: str, master: str | None, settings: Mapping[str, str]) -> SparkSession:
    """Returns a session on `master`. None means spark-submit's session, or a local one with all cores if there is
    none."""
    if master is None and "PYSPARK_GATEWAY_PORT" in os.environ:
        return _session(name, None, settings)
    if master is None:
        spark = local_session(name, cores=os.cpu_count() or 1, settings=settings)
    elif master.startswith("local"):
        spark = local_session(name, settings={"spark.master": master, **settings})
    else:
        spark = _on_cluster(name, master, settings)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _on_cluster(name: str, master: str, settings: Mapping[str, str]) -> SparkSession:
    os.environ.setdefault("JAVA_HOME", str(java_home()))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="klamm-py-files-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    shipped = write_py_files(directory / "klamm-spark.zip")
    given = settings.get("spark.submit.pyFiles")
    py_files = f"{given},{shipped}" if given else str(shipped)
    return _session(name, master, {**settings, "spark.submit.pyFiles": py_files})


def _session(name: str, master: str | None, settings: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for setting, value in {**{key: SETTINGS[key] for key in EVERYWHERE}, **settings}.items():
        builder = builder.config(setting, value)
    return builder.getOrCreate()
