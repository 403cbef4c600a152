"""Prepares the Python processes of Spark for the connector's errors and modules, around each call of Spark.

**Errors.** Spark puts the traceback of its Python worker into the error of the query, so the sentence would be its last
line. The worker leaves the traceback out if an environment variable is set when it reports the error. It ends after
that, so the variable affects no other error.

**Garbage.** PySpark runs a full collection after each task (`pyspark/daemon.py`). A collection looks at
every object of the loaded modules, which takes 20 ms. In a query of small micro-batches, that is half of the
processor's time. A collection leaves frozen objects out.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from typing import Final

from klamm.errors import KlammError
from pyspark_klamm.worker_process import is_worker

HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
"""The variable that `pyspark.util.handle_worker_exception` reads."""


class _Frozen:
    """The number of modules whose objects are frozen."""

    module_count = 0


@contextlib.contextmanager
def spark_call() -> Iterator[None]:
    """Has Spark report a KlammError of the block, or of the decorated function, as one line. Other errors may be faults
    of the program, so they keep their tracebacks. After the block, freezes the objects of modules that are new."""
    try:
        yield
    except KlammError:
        if is_worker():
            os.environ[HIDE_TRACEBACK] = "1"
        raise
    if is_worker():
        _freeze_modules()


def _freeze_modules() -> None:
    if len(sys.modules) > _Frozen.module_count:
        gc.collect()
        gc.freeze()
        _Frozen.module_count = len(sys.modules)
