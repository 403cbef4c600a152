"""One member of a group."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from klamm_coordinator.classic.messages import JoinGroup, Protocol


@dataclass(slots=True)
class ClassicMember:
    """What the group knows of it.

    Invariant: it waits for at most one thing, so `join_reply_id` and `sync_reply_id` are not both set."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    join_reply_id: int | None = None
    """The parked JoinGroup."""
    sync_reply_id: int | None = None
    """The parked SyncGroup."""
    is_new: bool = False
    """True until the member was in a generation. Until then it is unknown whether it still waits for its first
    answer."""

    @classmethod
    def from_request(cls, request: JoinGroup, member_id: str) -> ClassicMember:
        """A member that joins for the first time."""
        return cls(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
            join_reply_id=request.reply_id,
            is_new=True,
        )

    @property
    def is_awaiting_join(self) -> bool:
        return self.join_reply_id is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """The member's metadata for that assignor, which it must support."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        raise AssertionError(f"member {self.member_id} does not support {protocol_name!r}")

    def vote(self, candidates: AbstractSet[str]) -> str:
        """The candidate it likes best; there must be one that it supports."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)

    def survives_session_end(self) -> bool:
        """A parked request proves that it lives, except a new member's join: its connection may be long gone."""
        return not self.is_new and (self.join_reply_id is not None or self.sync_reply_id is not None)
