"""The identity of a group member, which it sends with each call to its coordinator."""

from __future__ import annotations

from typing import NamedTuple

NO_GENERATION = -1


class Identity(NamedTuple):
    """The generation (or member epoch) and the member id."""

    generation_id: int
    member_id: str
