"""The decisions of one session, kept until the access control lists are others.

Images share what did not change, so the identity of their index tells whether a decision still holds: other changes of
the metadata cost nothing.

A client chooses the names that it asks for, before it has any right. So memory is bounded three times. Names longer
than `KEPT_NAME_MAX` are decided each time. A session that asks for more than `DECISIONS_MAX` names starts with an empty
table again. All sessions of a server together keep at most `DECISIONS_MAX_BYTES`, also those of clients that have gone.
"""

from __future__ import annotations

import weakref
from typing import Final, Protocol

from klamm.acls import AclDecision, AclOperation, ResourceType
from klamm.model import TOPIC_NAME_LENGTH_MAX
from klamm_server.metadata.acl_index import AclIndex
from klamm_server.security.acls.authorizer import StandardAuthorizer

DECISIONS_MAX: Final = 10_000
"""The maximum number of decisions that one session keeps."""
KEPT_NAME_MAX: Final = TOPIC_NAME_LENGTH_MAX
"""The longest name whose decision is kept, in characters, for all types of resources. No topic has a longer name. A
longer group or transactional id is valid, and its rights are decided at each request."""
DECISIONS_MAX_BYTES: Final = 64 * 1024**2
"""The maximum of what all sessions of a server keep. If another decision needs room, the session that has kept its
decisions for the longest time starts with an empty table again."""
_OVERHEAD_BYTES: Final = 300
"""The size of a kept decision without its name. A character of a name counts as four bytes."""


class DecisionTable(Protocol):
    """A session's table of decisions."""

    def clear(self) -> None:
        """Empties the table and gives its bytes back to the room."""


class DecisionBudget:
    """Bounds the bytes that all sessions of one server keep. `held_bytes` is the sum of `_sizes`."""

    def __init__(self, max_bytes: int = DECISIONS_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._sizes: dict[weakref.ref[DecisionTable], int] = {}
        """The bytes by session, in the order in which the sessions began their tables."""
        self.held_bytes = 0

    def ref_of(self, decisions: DecisionTable) -> weakref.ref[DecisionTable]:
        """Returns the key of a session. The room forgets the session when it is deleted."""
        ref = weakref.ref(decisions, self.give_back)
        # A reference keeps its hash, but gets none after its session was deleted.
        hash(ref)
        return ref

    def take(self, ref: weakref.ref[DecisionTable], size_bytes: int) -> None:
        """Counts bytes of a session. Clears the tables of other sessions, or its own, if there is no room."""
        while self.held_bytes + size_bytes > self._max_bytes:
            oldest = next(iter(self._sizes), None)
            if oldest is None:
                break
            decisions = oldest()
            if decisions is not None:
                decisions.clear()
            self.give_back(oldest)
        self._sizes[ref] = self._sizes.get(ref, 0) + size_bytes
        self.held_bytes += size_bytes

    def give_back(self, ref: weakref.ref[DecisionTable]) -> None:
        """Releases all bytes of a session."""
        self.held_bytes -= self._sizes.pop(ref, 0)


class Decisions:
    """The cached decisions of `authorizer` about one principal at one address. `budget` is None for a session that
    shares its room with no other."""

    __slots__ = ("__weakref__", "_acls", "_authorizer", "_budget", "_host", "_kept", "_principal", "_ref")

    def __init__(
        self, authorizer: StandardAuthorizer, principal: str, host: str, budget: DecisionBudget | None = None
    ) -> None:
        self._authorizer = authorizer
        self._principal = principal
        self._host = host
        self._budget = DecisionBudget() if budget is None else budget
        self._ref = self._budget.ref_of(self)
        self._acls: AclIndex | None = None
        self._kept: dict[tuple[AclOperation, ResourceType, str], AclDecision] = {}

    def __len__(self) -> int:
        """Returns the number of kept decisions."""
        return len(self._kept)

    def decide(self, acls: AclIndex, operation: AclOperation, resource_type: ResourceType, name: str) -> AclDecision:
        """Returns the authorizer's decision for this session (`StandardAuthorizer.authorize`)."""
        if acls is not self._acls:
            self._acls = acls
            self.clear()
        key = (operation, resource_type, name)
        decision = self._kept.get(key)
        if decision is None:
            decision = self._authorizer.authorize(acls, self._principal, self._host, operation, resource_type, name)
            if len(name) <= KEPT_NAME_MAX:
                self._keep(key, decision)
        return decision

    def clear(self) -> None:
        """Forgets all decisions."""
        self._kept.clear()
        self._budget.give_back(self._ref)

    def _keep(self, key: tuple[AclOperation, ResourceType, str], decision: AclDecision) -> None:
        if len(self._kept) >= DECISIONS_MAX:
            self.clear()
        self._budget.take(self._ref, _OVERHEAD_BYTES + 4 * len(key[2]))
        self._kept[key] = decision
