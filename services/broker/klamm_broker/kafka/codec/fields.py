"""The plain values of an answer, as handlers return them (`messages.py` encodes them)."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

Fields = Mapping[str, Any]
"""The fields of an answer or of a part of it, by the names of Kafka's schemas."""


def milliseconds(value: datetime.timedelta) -> int:
    """Returns a duration of a request in milliseconds."""
    return value // datetime.timedelta(milliseconds=1)
