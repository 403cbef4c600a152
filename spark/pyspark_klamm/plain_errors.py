"""Shows users of Spark the sentence of an error, and not a Python traceback around it.

Spark puts the traceback of its Python worker into the error of the query, so the sentence would be its last line. The
worker leaves the traceback out if an environment variable is set when it reports the error. It ends after that, so the
variable affects no other error.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final

from klamm.errors import KlammError
from pyspark_klamm.worker_process import is_worker

HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
"""The variable that `pyspark.util.handle_worker_exception` reads."""


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Has Spark report a KlammError of the block, or of the decorated function, as one line. Other errors may be faults
    of the program, so they keep their tracebacks."""
    try:
        yield
    except KlammError:
        if is_worker():
            os.environ[HIDE_TRACEBACK] = "1"
        raise
