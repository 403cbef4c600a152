"""The memory that one coordinator may use for one kind of shard, with a fair share for each user.

A bound that counts things bounds no memory if a thing may have any size. So the shards of a kind count the bytes that
they keep, by user, and all of them share one budget, by the rule of `fair_share.py`. Users that are not modest have at
most a multiple of the bytes that are free without the reserve:

    BEGIN      3 times for a request that begins a member, a group or a transactional id
    CONTINUE   7 times for a request that adds to one: offsets, assignments, partitions of a transaction

So a user alone may fill two thirds of the budget, and then add to them up to three quarters. Requests that do not make
the state larger are always admitted. State that is loaded from the log is counted and never refused. As long as it
counts for nobody, requests that add to it are admitted while any byte is free.

Invariant: `held_bytes` is the sum of the bytes of all users.
"""

from __future__ import annotations

from typing import Final

from klamm_server.runtime.fair_share import is_fair

NOBODY: Final = ""
"""The user of state that was loaded from the log and that no request has touched since."""
NOTE_INTERVAL_MS: Final = 60_000
"""The shortest time between two lines about refusals in the program's log, in milliseconds."""


class Share:
    """The bytes of one user. Only `ByteShares` changes it."""

    __slots__ = ("held_bytes", "user")

    def __init__(self, user: str) -> None:
        self.user = user
        self.held_bytes = 0


class ByteShares:
    """The bytes of all users in one budget of `max_bytes`. `setting` is the name of the setting with the budget."""

    def __init__(self, max_bytes: int, setting: str) -> None:
        self.max_bytes = max_bytes
        self.setting = setting
        self.held_bytes = 0
        self.refused_count = 0
        """The number of requests that were refused."""
        self._by_user: dict[str, Share] = {}
        self._quiet_until_ms = 0

    def of(self, user: str) -> int:
        """Returns the bytes that the user holds."""
        share = self._by_user.get(user)
        return 0 if share is None else share.held_bytes

    def share_of(self, user: str) -> Share:
        """Returns the user's share, for `add`. A caller may keep it as long as it holds bytes in it."""
        share = self._by_user.get(user)
        if share is None:
            share = self._by_user[user] = Share(user)
        return share

    def add(self, share: Share, added_bytes: int) -> None:
        """Counts bytes in the share. A negative number gives bytes back."""
        self.held_bytes += added_bytes
        share.held_bytes += added_bytes
        if share.held_bytes <= 0:
            assert share.held_bytes == 0, (share.user, share.held_bytes, added_bytes)
            del self._by_user[share.user]

    def admits(self, user: str, added_bytes: int, times_free: int) -> bool:
        """Returns True if the user may hold this many more bytes. `times_free` is BEGIN or CONTINUE."""
        if added_bytes <= 0:
            return True
        free_bytes = self.max_bytes - self.held_bytes - added_bytes
        held_bytes = self.of(user) + added_bytes
        if user == NOBODY:
            return free_bytes >= 0
        return is_fair(held_bytes, free_bytes, self.max_bytes, times_free)

    def refuse(self, what: str, user: str, added_bytes: int, now_ms: int) -> str | None:
        """Counts a refused request. Returns the line for the program's log, or None if the last one is too recent.

        `what` names the thing that the request was about, as a pair of the log line."""
        self.refused_count += 1
        if now_ms < self._quiet_until_ms:
            return None
        self._quiet_until_ms = now_ms + NOTE_INTERVAL_MS
        return (
            f"refused a request, because its user holds too much of the memory in {self.setting}, {what}"
            f" user={user} user_bytes={self.of(user)} added_bytes={added_bytes}"
            f" free_bytes={max(0, self.max_bytes - self.held_bytes)} refused_count={self.refused_count}"
        )

    def check_invariants(self) -> None:
        """Asserts the invariant that the module's docstring lists."""
        held = {user: share.held_bytes for user, share in self._by_user.items()}
        assert self.held_bytes == sum(held.values()), (self.held_bytes, held)
        assert all(held_bytes > 0 for held_bytes in held.values()), held


def unbounded() -> ByteShares:
    """Returns shares that admit every request, for state that no shard serves."""
    return ByteShares(1 << 62, "no setting")
