"""Makes a caller with given access control lists. Without any, the caller may do nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from klamm.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from klamm_server.metadata.acl_index import AclDraft, AclIndex
from klamm_server.security.acls.authorizer import StandardAuthorizer
from klamm_server.security.session import CALLER, Session

ALICE = "User:alice"
HOST = "10.0.0.1"


def allow(operation: AclOperation, resource_type: ResourceType, name: str, principal: str = ALICE) -> AclBinding:
    """Returns an ACL that allows the operation from every host."""
    return AclBinding(resource_type, name, PatternType.LITERAL, principal, "*", operation, AclPermissionType.ALLOW)


def index_of(acls: Iterable[AclBinding]) -> AclIndex:
    """Returns the index of these ACLs. Each ACL gets an id."""
    draft = AclDraft(AclIndex())
    for number, binding in enumerate(acls):
        draft.add(uuid.UUID(int=number), binding)
    return draft.finish()


def session_of(*acls: AclBinding, principal: str = ALICE) -> Session:
    """Returns the session of a principal at `HOST`, to whom these ACLs apply."""
    index = index_of(acls)
    authorizer = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
    return Session(authorizer, lambda: index, principal, HOST)


@contextmanager
def called_with(*acls: AclBinding) -> Iterator[None]:
    """Makes `ALICE`, with the rights of these ACLs, the caller within the context."""
    token = CALLER.set(session_of(*acls))
    try:
        yield
    finally:
        CALLER.reset(token)
