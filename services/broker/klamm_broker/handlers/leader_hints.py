"""Leader hints (KIP-951): an answer that refuses a request names the leader, so that the client need not ask for
metadata.

The answer for each refused partition names its leader (`replica/leader_hint.py`). Each door adds its address.
"""

from __future__ import annotations

from typing import Final, Protocol

from klamm.errors import ErrorCode

HINTED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""Refusals that come with a hint."""


class AnsweredPartition(Protocol):
    """A partition's part of an answer."""

    @property
    def error_code(self) -> int: ...
    @property
    def current_leader(self) -> int: ...
    @property
    def current_leader_epoch(self) -> int: ...
