"""The rights that calls need for the resources that they name or show. Each is declared here once, by name.

`operations.py` lists the needs of each call. The handler of the call checks the same objects: `READ_GROUP.require(...)`
cannot check another right than the one that the table shows. Without an authorizer, or while a server acts for itself,
every need is met.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klamm.acls import CLUSTER_NAME, AclOperation, ResourceType
from klamm.errors import BrokerError
from klamm_server.security.session import CALLER, Session, refusal


class Right(NamedTuple):
    """An operation on a resource of a type."""

    operation: AclOperation
    resource_type: ResourceType

    def on(self, name: str) -> tuple[AclOperation, ResourceType, str]:
        """Returns the operation and the resource: the cluster, or the resource `name`."""
        return *self, CLUSTER_NAME if self.resource_type is ResourceType.CLUSTER else name


class Need(NamedTuple):
    """The rights of which a caller needs one for a resource of a request or of an answer."""

    one_of: tuple[Right, ...]
    refused_as: ResourceType | None
    """The type of the resource whose authorization error the caller gets, or None if the answer leaves the resource
    out."""

    def allows(self, name: str = CLUSTER_NAME) -> bool:
        """Returns True if the caller has one of the rights to the resource `name`. The audit records only the decision
        about the last right."""
        caller = CALLER.get()
        if caller is None:
            return True
        *others, last = self.one_of
        return any(caller.may_be_shown(*right.on(name)) for right in others) or caller.may(*last.on(name))

    def allows_any(self) -> bool:
        """Returns True if there can be a resource to which the caller has one of the rights (KIP-679). The audit
        records only the decision about the last right, which is a right to the cluster."""
        caller = CALLER.get()
        if caller is None:
            return True
        *others, last = self.one_of
        return any(caller.may_with_any(*right) for right in others) or caller.may(*last.on(CLUSTER_NAME))

    def require(self, name: str = CLUSTER_NAME) -> None:
        """Raises the error of the resource's type (TopicAuthorizationFailedError, GroupAuthorizationFailedError ...)
        unless the caller has one of the rights (`allows`)."""
        if not self.allows(name):
            raise self.refusal()

    def shows(self, name: str = CLUSTER_NAME) -> bool:
        """Returns True if an answer may show the resource to the caller. The audit does not record the decision,
        because the request does not name the resource."""
        caller = CALLER.get()
        return caller is None or self.shows_to(caller, name)

    def shows_to(self, session: Session, name: str) -> bool:
        """Returns True if an answer may show the resource to that session (`shows`)."""
        return any(session.may_be_shown(*right.on(name)) for right in self.one_of)

    def refuse_early(self, name: str = CLUSTER_NAME) -> None:
        """Raises as `require`, before another server is asked that checks the need again.

        The audit of this server records only a refusal. The other server records an allowed operation."""
        if not self.shows(name):
            self.require(name)

    def refusal(self) -> BrokerError:
        """Returns the error for a caller without these rights."""
        assert self.refused_as is not None, "the answer leaves the resource out"
        return refusal(self.refused_as)


def _need(*rights: tuple[AclOperation, ResourceType]) -> Need:
    """Returns a need of one of these rights. A caller without them gets the error of the last one's resource."""
    return Need(tuple(Right(*right) for right in rights), rights[-1][1])


def _shown_with(*rights: tuple[AclOperation, ResourceType]) -> Need:
    """Returns a need of one of these rights. The answer to a caller without them leaves the resource out."""
    return _need(*rights)._replace(refused_as=None)


_TOPIC, _GROUP, _TRANSACTION, _CLUSTER = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.CLUSTER,
)
_READ, _WRITE, _CREATE, _DELETE, _DESCRIBE, _ALTER = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.ALTER,
)

READ_TOPIC: Final = _need((_READ, _TOPIC))
WRITE_TOPIC: Final = _need((_WRITE, _TOPIC))
DESCRIBE_TOPIC: Final = _need((_DESCRIBE, _TOPIC))
ALTER_TOPIC: Final = _need((_ALTER, _TOPIC))
CREATE_TOPIC: Final = _need((_CREATE, _CLUSTER), (_CREATE, _TOPIC))
DELETE_TOPIC: Final = _need((_DELETE, _CLUSTER), (_DELETE, _TOPIC))
"""An ACL can only give DELETE on the cluster with ALL."""
DELETE_RECORDS: Final = _need((_DELETE, _TOPIC))
TOPIC_SHOWN: Final = _shown_with((_DESCRIBE, _TOPIC))
TOPIC_CONFIGS_SHOWN: Final = _shown_with((AclOperation.DESCRIBE_CONFIGS, _TOPIC))
WRITE_INTERNAL_TOPIC: Final = Need((Right(AclOperation.CLUSTER_ACTION, _CLUSTER),), refused_as=_TOPIC)
"""The need of a produce to an internal topic, which only servers write. Kafka writes these topics without Produce, and
refuses it with INVALID_TOPIC_EXCEPTION."""
EPOCH_END: Final = _need((AclOperation.CLUSTER_ACTION, _CLUSTER), (_DESCRIBE, _TOPIC))

READ_GROUP: Final = _need((_READ, _GROUP))
DESCRIBE_GROUP: Final = _need((_DESCRIBE, _GROUP))
DELETE_GROUP: Final = _need((_DELETE, _GROUP))
GROUP_SHOWN: Final = _shown_with((_DESCRIBE, _CLUSTER), (_DESCRIBE, _GROUP))

WRITE_TRANSACTION: Final = _need((_WRITE, _TRANSACTION))
DESCRIBE_TRANSACTION: Final = _need((_DESCRIBE, _TRANSACTION))
PREPARE_TRANSACTION: Final = _need((AclOperation.TWO_PHASE_COMMIT, _TRANSACTION))
TRANSACTION_SHOWN: Final = _shown_with((_DESCRIBE, _TRANSACTION))
IDEMPOTENT_WRITE: Final = _need((_WRITE, _TOPIC), (AclOperation.IDEMPOTENT_WRITE, _CLUSTER))
"""The need of a producer without a transactional id. WRITE on any topic is enough (KIP-679)."""

ACT_AS_SERVER: Final = _need((AclOperation.CLUSTER_ACTION, _CLUSTER))
CLUSTER_SHOWN: Final = _shown_with((_DESCRIBE, _CLUSTER))
"""The need of the operations that the caller may perform on the cluster (KIP-430)."""

_WITH_CONFIGS: Final = (_TOPIC, _GROUP, _CLUSTER)
"""The resources that have configs. Configs of brokers need a right to the cluster."""
DESCRIBE_CONFIGS: Final = {kind: _need((AclOperation.DESCRIBE_CONFIGS, kind)) for kind in _WITH_CONFIGS}
ALTER_CONFIGS: Final = {kind: _need((AclOperation.ALTER_CONFIGS, kind)) for kind in _WITH_CONFIGS}
