"""The bytes of the groups or transactional ids of one shard, each with the user for whom they count.

They count for the user whose request created the group or id, no matter who adds to it later. The log does not have
that user. So after a load they count for nobody, until a user adds to them.

Invariants: the shares of a user have the bytes of its accounts; no account is empty.
"""

from __future__ import annotations

from typing import Any

from klamm_coordinator.runtime.event_context import EventContext
from klamm_server.runtime.byte_shares import NOBODY, ByteShares, Share


class _Account:
    __slots__ = ("share", "size_bytes")

    def __init__(self, share: Share) -> None:
        self.share = share
        self.size_bytes = 0


class Accounts:
    """The accounts of one shard, by group id or transactional id. The caller calls `close` when it drops the shard."""

    def __init__(self, shares: ByteShares) -> None:
        self.shares = shares
        self.requester = NOBODY
        """The user whose request is being handled. New accounts, and those of nobody, become this user's."""
        self._accounts: dict[str, _Account] = {}

    def size_bytes(self, key: str) -> int:
        """Returns the bytes of an account, 0 if there is none."""
        account = self._accounts.get(key)
        return 0 if account is None else account.size_bytes

    def user_of(self, key: str) -> str:
        """Returns the user for whom more bytes of `key` would count."""
        account = self._accounts.get(key)
        return self.requester if account is None else account.share.user or self.requester

    def add(self, key: str, added_bytes: int) -> None:
        """Counts bytes of `key`. A negative number gives bytes back."""
        if not added_bytes:
            return
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = _Account(self.shares.share_of(self.requester))
        elif self.requester and not account.share.user:
            self.claim(key)
        account.size_bytes += added_bytes
        self.shares.add(account.share, added_bytes)
        if not account.size_bytes:
            del self._accounts[key]

    def claim(self, key: str) -> None:
        """Makes an account of nobody the requester's."""
        account = self._accounts.get(key)
        if account is not None and self.requester and not account.share.user:
            self.shares.add(account.share, -account.size_bytes)
            account.share = self.shares.share_of(self.requester)
            self.shares.add(account.share, account.size_bytes)

    def admits(self, key: str, added_bytes: int, times_free: int) -> bool:
        """Returns True if `key` may have this many more bytes (`ByteShares.admits`)."""
        return added_bytes <= 0 or self.shares.admits(self.user_of(key), added_bytes, times_free)

    def refuse(self, kind: str, key: str, added_bytes: int, context: EventContext[Any, Any]) -> None:
        """Counts a refused request, and notes it in the program's log unless the last line is too recent."""
        line = self.shares.refuse(f"{kind}={key}", self.user_of(key), added_bytes, context.now.monotonic_ms)
        if line is not None:
            context.note(line)

    def close(self) -> None:
        """Gives all bytes back, because the coordinator drops the shard."""
        for account in self._accounts.values():
            self.shares.add(account.share, -account.size_bytes)
        self._accounts.clear()

    def check_invariants(self, sizes: dict[str, int]) -> None:
        """Asserts the module's invariants. `sizes` are the bytes of each key, counted from the state itself."""
        counted = {key: account.size_bytes for key, account in self._accounts.items()}
        assert counted == sizes, {key: (counted.get(key), sizes.get(key)) for key in counted.keys() | sizes.keys()}
        self.shares.check_invariants()
