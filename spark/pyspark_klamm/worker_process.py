"""Recognises the Python processes of Spark, and corrects two errors that they report.

When a session stops, Spark closes the connections of idle workers and then ends them. A worker that notices the closed
connection first reports it to Spark, over the same connection. The attempt fails, and a BrokenPipeError appears in the
terminal after a run that succeeded. The same happens in a task whose query has ended.

If a stream's reader cannot be made, PySpark reports that it has no reader, and hides why. PySpark has no setting for
these cases, so its report is replaced in these processes.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import IO, Any, Final

from klamm.errors import KlammError

_REPORT: Final = "handle_worker_exception"
_REPORTERS: Final = ("__main__", "pyspark.worker", "pyspark.sql.worker.utils")
"""The modules of PySpark that report an exception of a worker. The first is that of a stream's reader."""


def is_worker() -> bool:
    """Returns True in a process that Spark has started to run Python for it."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


def correct_reports() -> None:
    """Makes this process report its errors as the module's docstring says, if it is a process of Spark."""
    if not is_worker():
        return
    for name in _REPORTERS:
        report = getattr(sys.modules.get(name), _REPORT, None)
        if report is not None and not hasattr(report, "__wrapped__"):
            setattr(sys.modules[name], _REPORT, _corrected(report))


def _corrected(report: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(report)
    def corrected(error: BaseException, outfile: IO[bytes], *arguments: Any, **options: Any) -> None:
        report(_reason(error), outfile, *arguments, **options)
        try:
            outfile.flush()
        except OSError:
            # Spark has closed the connection, so it wants no report.
            os._exit(0)

    return corrected


def _reason(error: BaseException) -> BaseException:
    """Returns the error for which a stream has no reader, or the error itself."""
    if isinstance(error, UnboundLocalError) and isinstance(error.__context__, KlammError):
        return error.__context__
    return error
