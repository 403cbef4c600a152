"""Logging set-up: one line per event on stderr, `time level logger message` with key=value pairs in the message."""

from __future__ import annotations

import logging
import sys
import time


class LineFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO klamm_broker.server broker=1 started`, in UTC; tracebacks follow."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")


def set_up_logging(level: str) -> None:
    """Sends everything from `level` ("INFO") on to stderr, and nothing anywhere else."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
