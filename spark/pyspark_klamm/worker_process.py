"""Recognises the Python processes of Spark, and corrects two errors that they report.

When a session stops, Spark closes the connections of idle workers and then ends them. A worker that notices the closed
connection first reports it to Spark, over the same connection. The attempt fails, and a BrokenPipeError appears in the
terminal after a run that succeeded. And if a stream's reader cannot be made, PySpark reports that it has no reader, and
hides why. PySpark has no setting for this, so its report is replaced in these processes.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, Final

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
    def corrected(error: BaseException, *arguments: Any, **options: Any) -> None:
        if _says_closed(error):
            os._exit(0)
        report(_reason(error), *arguments, **options)

    return corrected


def _reason(error: BaseException) -> BaseException:
    """Returns the error for which a stream has no reader, or the error itself."""
    if isinstance(error, UnboundLocalError) and isinstance(error.__context__, KlammError):
        return error.__context__
    return error


def _says_closed(error: BaseException) -> bool:
    """Returns True if PySpark found the end of its connection where the next request would begin. Another EOFError may
    be a fault of the program."""
    if not isinstance(error, EOFError):
        return False
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    return innermost is not None and innermost.tb_frame.f_globals.get("__name__") == "pyspark.serializers"
