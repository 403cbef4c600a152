"""The rule by which users share a budget, such as bytes of memory or places for waiting requests.

A request that takes more of the budget is admitted by one of two rules:

    a modest user   has at most 1/64 of the budget after the request, or one unit: admitted while any unit is free
    other users     have at most a multiple of the units that are free without the reserve, which is 1/8 of the budget

A user alone may take most of the budget. Users that take all that they may, one after the other, leave the reserve to
modest users. (Choudhury and Hahne, Dynamic queue length thresholds for shared-memory packet switches, 1998, have the
second rule.) Pure.
"""

from __future__ import annotations

from typing import Final

BEGIN: Final = 3
"""How many times the free units without the reserve a user may hold after a request that begins something."""
CONTINUE: Final = 7
"""How many times the free units without the reserve a user may hold after a request that adds to something."""
MODEST: Final = 64
"""A user with this part of the budget, or less, is modest."""
RESERVE: Final = 8
"""The part of the budget that only modest users may take."""


def is_fair(held: int, free: int, budget: int, times_free: int) -> bool:
    """Returns True if a user may hold `held` units of the budget while `free` units are left. `times_free` is BEGIN or
    CONTINUE."""
    if held * MODEST <= budget or held <= 1:
        return free >= 0
    return held <= times_free * (free - budget // RESERVE)
