"""Requests of several things, of which the caller may change or see some.

Rights are looked at before a request is submitted: decisions are taken in the queue's turn, which is nobody's call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from klamm.acls import AclOperation, ResourceType
from klamm.errors import ErrorCode
from klamm.wire.v1.controller_pb2 import ConfigResource
from klamm.wire.v1.metadata_pb2 import CONFIG_RESOURCE_TYPE_TOPIC
from klamm_server.security.session import may, may_be_shown_with_cluster, may_with_cluster

AskedT = TypeVar("AskedT")
ResultT = TypeVar("ResultT")


class Permitted(Generic[AskedT, ResultT]):
    """What of a request is to be decided: `asked`. All else is answered by `refuse`."""

    def __init__(
        self,
        asked: Iterable[AskedT],
        is_permitted: Callable[[AskedT], bool],
        refuse: Callable[[AskedT], ResultT],
    ) -> None:
        self._all = [(one, is_permitted(one)) for one in asked]
        self._refuse = refuse
        self.asked = [one for one, permitted in self._all if permitted]

    @property
    def is_all(self) -> bool:
        """Whether nothing is refused."""
        return len(self.asked) == len(self._all)

    def results(self, decided: Sequence[ResultT]) -> list[ResultT]:
        """The results of what was decided and of what was refused, in the order of the request."""
        results = iter(decided)
        return [next(results) if permitted else self._refuse(one) for one, permitted in self._all]


def may_create(topic: str) -> bool:
    """Whether the caller may create topics in the cluster, or this topic."""
    return may_be_shown_with_cluster(AclOperation.CREATE) or may(AclOperation.CREATE, ResourceType.TOPIC, topic)


def may_with_configs(operation: AclOperation, resource: ConfigResource) -> bool:
    """Whether the caller may do this with the configs. Those of brokers need a right to the cluster."""
    if resource.type == CONFIG_RESOURCE_TYPE_TOPIC:
        return may(operation, ResourceType.TOPIC, resource.name)
    return may_with_cluster(operation)


def refusal_of_configs(resource: ConfigResource) -> ErrorCode:
    """The code for a caller that has no right to the resource."""
    if resource.type == CONFIG_RESOURCE_TYPE_TOPIC:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
