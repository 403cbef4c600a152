"""Makes the authorizer and the gate of a server from its settings."""

from __future__ import annotations

import logging
from collections.abc import Callable

from klamm.acls import ANONYMOUS
from klamm.errors import ConfigError
from klamm_server.config.server_config import ServiceConfig
from klamm_server.metadata.acl_index import AclIndex
from klamm_server.security.acls.authorizer import StandardAuthorizer
from klamm_server.security.auditor import Auditor
from klamm_server.security.gate import Gate
from klamm_server.security.listeners_tls import ListenersTls
from klamm_server.security.peer_principals import LOGGED_IN, PeerPrincipals

log = logging.getLogger(__name__)


def authorizer_of(config: ServiceConfig) -> StandardAuthorizer | None:
    """Returns the configured authorizer, or None if none is configured. All clients may then perform all operations."""
    if not config.authorizer_class_name:
        return None
    return StandardAuthorizer(
        super_users=config.super_user_names(),
        allow_everyone_if_no_acl_found=config.allow_everyone_if_no_acl_found,
    )


def gate_of(
    authorizer: StandardAuthorizer | None,
    tls: ListenersTls | None,
    acls: Callable[[], AclIndex],
    *,
    servers_listener: str | None,
    is_loaded: Callable[[], bool],
    auditor: Auditor | None = None,
) -> Gate | None:
    """Returns the gate of a server, or None without an authorizer. Other servers call at `servers_listener`, or at
    every listener if it is None. Until `is_loaded`, `acls` may be incomplete, so only super users pass."""
    if authorizer is None:
        return None
    principal_of = (lambda _: LOGGED_IN.get() or ANONYMOUS) if tls is None else PeerPrincipals(tls).of
    return Gate(authorizer, acls, principal_of, servers_listener=servers_listener, is_loaded=is_loaded, auditor=auditor)


def check_own_principal(
    authorizer: StandardAuthorizer | None, tls: ListenersTls | None, *, must_be_super: bool
) -> None:
    """Checks that other servers will accept this server by its principal.

    Raises ConfigError if a controller (`must_be_super`) is not a super user, because controllers elect a leader before
    they know any ACL. Logs a warning for another server that is not a super user, because an ACL may still allow its
    calls."""
    if authorizer is None or tls is None:
        return
    own = PeerPrincipals(tls).own()
    if authorizer.is_super_user(own):
        return
    if must_be_super:
        raise ConfigError(f"super.users: {own}, the principal of this controller, is missing")
    log.warning("%s, the principal of this server, is not a super user and needs CLUSTER_ACTION on the cluster", own)
