"""Places for requests that last, such as parked fetches, with a fair share for each user.

A bound for everybody together lets one client take all places. So each user has a share of them, by the rule of
`fair_share.py`: a user alone may take two thirds of the places, and modest users then still find places. Pure.

Invariant: `len(places)` is the sum of the places of all users.
"""

from __future__ import annotations

from klamm_server.runtime.fair_share import BEGIN, is_fair


class PlaceShares:
    """The places of all users, at most `places_max`."""

    __slots__ = ("_by_user", "_places_max", "_taken", "refused_count")

    def __init__(self, places_max: int) -> None:
        self._places_max = places_max
        self._by_user: dict[str, int] = {}
        self._taken = 0
        self.refused_count = 0
        """The number of requests that got no place."""

    def __len__(self) -> int:
        """Returns the number of taken places."""
        return self._taken

    def take(self, user: str) -> bool:
        """Takes a place for the user. Returns False, and counts the refusal, if the user may not have it."""
        taken = self._taken + 1
        held = self._by_user.get(user, 0) + 1
        if not is_fair(held, self._places_max - taken, self._places_max, BEGIN):
            self.refused_count += 1
            return False
        self._by_user[user] = held
        self._taken = taken
        return True

    def give_back(self, user: str) -> None:
        """Gives a place of the user back."""
        held = self._by_user[user] - 1
        if held:
            self._by_user[user] = held
        else:
            del self._by_user[user]
        self._taken -= 1

    def check_invariants(self) -> None:
        """Asserts the invariant that the module's docstring names."""
        assert self._taken == sum(self._by_user.values()) <= self._places_max, (self._taken, self._by_user)
        assert all(held > 0 for held in self._by_user.values()), self._by_user
