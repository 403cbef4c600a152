"""The state that a classic group keeps about each member."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from klamm_coordinator.classic.messages import JoinGroup, Protocol
from klamm_coordinator.classic.subscription import topic_count_max
from klamm_coordinator.groups.sizes import MEMBER_BYTES, PROTOCOL_BYTES, TOPIC_BYTES, text_bytes


@dataclass(slots=True)
class ClassicMember:
    """A member of a classic group.

    Invariant: a member waits for at most one answer, so `join_reply_id` and `sync_reply_id` are not both set."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    join_reply_id: int | None = None
    """The reply id of the member's parked JoinGroup, or None."""
    sync_reply_id: int | None = None
    """The reply id of the member's parked SyncGroup, or None."""
    is_new: bool = False
    """True until the member was in a generation. Until then it is unknown whether it still waits for its first
    answer."""

    @classmethod
    def from_request(cls, request: JoinGroup, member_id: str) -> ClassicMember:
        """Returns a member that joins for the first time."""
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
    def size_bytes(self) -> int:
        """The memory that the member takes, in bytes."""
        names = (self.member_id, self.instance_id, self.client_id, self.client_host)
        return (
            MEMBER_BYTES
            + sum(map(text_bytes, names))
            + sum(PROTOCOL_BYTES + text_bytes(protocol.name) + len(protocol.metadata) for protocol in self.protocols)
            + TOPIC_BYTES * max((topic_count_max(protocol.metadata) for protocol in self.protocols), default=0)
            + len(self.assignment)
        )

    @property
    def is_awaiting_join(self) -> bool:
        return self.join_reply_id is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Returns the member's metadata for the assignor `protocol_name`, which the member must support."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        raise AssertionError(f"member {self.member_id} does not support {protocol_name!r}")

    def vote(self, candidates: AbstractSet[str]) -> str:
        """Returns the candidate that the member prefers. The member must support at least one candidate."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)

    def survives_session_end(self) -> bool:
        """Returns True if a parked request shows that the member is alive. A new member's join does not, because its
        connection may be dead."""
        return not self.is_new and (self.join_reply_id is not None or self.sync_reply_id is not None)
