"""The decisions of one session, kept until the access control lists are others.

Images share what did not change, so the identity of their index tells whether a decision still holds: other changes of
the metadata cost nothing. Bounded: a session that asks for more names than are kept starts with an empty table again.
"""

from __future__ import annotations

from typing import Final

from klamm.acls import AclDecision, AclOperation, ResourceType
from klamm_server.metadata.acl_index import AclIndex
from klamm_server.security.acls.authorizer import StandardAuthorizer

DECISIONS_MAX: Final = 10_000


class Decisions:
    """The cached decisions of `authorizer` about one principal at one address."""

    __slots__ = ("_acls", "_authorizer", "_host", "_kept", "_principal")

    def __init__(self, authorizer: StandardAuthorizer, principal: str, host: str) -> None:
        self._authorizer = authorizer
        self._principal = principal
        self._host = host
        self._acls: AclIndex | None = None
        self._kept: dict[tuple[AclOperation, ResourceType, str], AclDecision] = {}

    def decide(self, acls: AclIndex, operation: AclOperation, resource_type: ResourceType, name: str) -> AclDecision:
        """Returns the authorizer's decision for this session (`StandardAuthorizer.authorize`)."""
        if acls is not self._acls:
            self._acls = acls
            self._kept.clear()
        key = (operation, resource_type, name)
        decision = self._kept.get(key)
        if decision is None:
            if len(self._kept) >= DECISIONS_MAX:
                self._kept.clear()
            decision = self._authorizer.authorize(acls, self._principal, self._host, operation, resource_type, name)
            self._kept[key] = decision
        return decision
