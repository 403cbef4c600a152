"""Leader hints (KIP-951): a broker that refuses a partition's request names the leader, so that the client need not ask
for metadata.

`replica/leader_hint.py` finds the leader. Each protocol adds the leader's address.
"""

from __future__ import annotations

from typing import Final, Protocol

from klamm.errors import ErrorCode

HINTED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""The errors that come with a leader hint."""


class AnsweredPartition(Protocol):
    """The answer for one partition, with its error and its leader hint."""

    @property
    def error_code(self) -> int: ...
    @property
    def current_leader(self) -> int: ...
    @property
    def current_leader_epoch(self) -> int: ...
