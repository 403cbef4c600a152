"""Divides the work for a Produce or Fetch of many partitions into several turns of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from typing import Final

TURN_PARTITIONS_MAX: Final = 1_000
"""A Produce or Fetch of more partitions is read, served and answered in different turns of the event loop."""


async def end_long_turn(partitions: Sized) -> None:
    """Ends the turn of the event loop after work for more than `TURN_PARTITIONS_MAX` partitions."""
    if len(partitions) > TURN_PARTITIONS_MAX:
        await asyncio.sleep(0)
