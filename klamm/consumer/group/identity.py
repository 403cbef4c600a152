"""What a group member shows with each call to its coordinator."""

from __future__ import annotations

from typing import NamedTuple

NO_GENERATION = -1


class Identity(NamedTuple):
    """Generation (or member epoch) and member id."""

    generation_id: int
    member_id: str
