"""A Spark session on this machine, with settings that suit the data source, for demos, tests and notebooks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_klamm.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"

SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    # Spark's own patterns, and patterns for the secret settings of clients.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|ssl.*key",
    "spark.sql.redaction.options.regex": "(?i)url|secret|password|token|jaas|ssl.*key",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # Python workers talk over a Unix socket: a tenth to a third less CPU.
    "spark.python.unix.domain.socket.enabled": "true",
    # The default manager forks some twenty processes per micro-batch where Hadoop's native library is missing.
    "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
"""The settings of `local_session`. Those of `spark.sql.streaming.*` are for local checkpoints only."""


def local_session(
    app_name: str, *, cores: int = 2, attempts: int = 4, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Returns a session with `cores` task slots, in which a task may fail `attempts` - 1 times.

    Sets JAVA_HOME and PYSPARK_PYTHON for this process. Raises RuntimeError if there is no Java to use."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{cores},{attempts}]").appName(app_name)
    for name, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
