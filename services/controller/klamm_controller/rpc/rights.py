"""Checks the caller's rights to each item of a request, such as each topic.

The rights are checked before the request is submitted, because the queue runs decisions outside of the caller's
context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from klamm.acls import ResourceType
from klamm.errors import BrokerError
from klamm.wire.v1.controller_pb2 import ConfigResource
from klamm.wire.v1.metadata_pb2 import CONFIG_RESOURCE_TYPE_GROUP, CONFIG_RESOURCE_TYPE_TOPIC
from klamm_server.runtime.sliced_work import map_in_slices
from klamm_server.security.needs import Need
from klamm_server.security.session import refusal

AskedT = TypeVar("AskedT")
ResultT = TypeVar("ResultT")

_NAMED: Final = {
    int(CONFIG_RESOURCE_TYPE_TOPIC): ResourceType.TOPIC,
    int(CONFIG_RESOURCE_TYPE_GROUP): ResourceType.GROUP,
}
"""The resources whose configs need a right to the resource itself."""


class Permitted(Generic[AskedT, ResultT]):
    """The items of a request, split by the caller's rights: `asked` has the permitted items, and `refused` the others.
    `of` makes it."""

    def __init__(self, checked: Sequence[tuple[AskedT, ResultT | None]]) -> None:
        """`checked` has every item with its result if it is refused, or None if it is permitted."""
        self._checked = checked
        self.asked = [item for item, refused in checked if refused is None]
        self.refused = [item for item, refused in checked if refused is not None]

    @classmethod
    async def of(
        cls,
        asked: Iterable[AskedT],
        is_permitted: Callable[[AskedT], bool],
        refuse: Callable[[AskedT], ResultT],
    ) -> Permitted[AskedT, ResultT]:
        """Checks each item. `refuse` makes the result of one that is not permitted. Lets the event loop run in between,
        because a caller without any right can name very many items."""
        return cls(await map_in_slices(lambda item: (item, None if is_permitted(item) else refuse(item)), asked))

    def results(self, decided: Sequence[ResultT]) -> list[ResultT]:
        """Returns the results of all items in the order of the request, where `decided` are the results of the
        permitted items."""
        results = iter(decided)
        return [next(results) if refused is None else refused for _, refused in self._checked]


def may_with_configs(needs: Mapping[ResourceType, Need], resource: ConfigResource) -> bool:
    """Returns True if the caller meets the need of the resource's type. Configs of topics and groups need a right to
    the topic or group, and all others need a right to the cluster (Kafka's ConfigHelper, ControllerApis)."""
    return needs[_type_of(resource)].allows(resource.name)


def refusal_of_configs(resource: ConfigResource) -> BrokerError:
    """Returns the error for a caller that has no right to the resource's configs."""
    return refusal(_type_of(resource))


def _type_of(resource: ConfigResource) -> ResourceType:
    return _NAMED.get(resource.type, ResourceType.CLUSTER)
