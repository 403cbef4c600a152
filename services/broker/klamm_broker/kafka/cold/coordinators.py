"""FindCoordinator: sends Kafka clients to a broker, which forwards their requests to the coordinator.

Clients can rely on three things. First, a group or transactional id has one coordinator, one of the live brokers with
the client's listener. Brokers with the same metadata name the same coordinator. It does not depend on the coordinator
process that owns the id's shard. If this process dies, the broker stays, and forwards requests to the next owner.

Second, the coordinator changes only when a broker joins or leaves, and then for most ids. Members and producers need
not notice. Any broker forwards their requests (joins, heartbeats, commits, all of a transaction), because the shard's
owner decides. Kafka refuses these requests on other brokers, because there the broker is the owner. In Klamm, a refusal
would only interrupt groups and transactions whenever a broker is added.

Third, only the coordinator lists, describes and deletes, as in Kafka, because clients ask every broker and join the
answers. `check_is_coordinator` refuses these requests elsewhere with NOT_COORDINATOR, after which a client asks
FindCoordinator again.

While one broker has newer metadata than another, they may name different coordinators. They agree as soon as both have
the same metadata. As in Kafka, a broker without connection to the controllers may name the wrong one until it reads
their log again.
"""

from __future__ import annotations

from typing import Any

from klamm.errors import BrokerError, ErrorCode
from klamm_broker.handlers.find_coordinator import CoordinatorFinder
from klamm_broker.kafka.api import ApiKey, Versions, api
from klamm_broker.kafka.codec.fields import Fields
from klamm_broker.kafka.listener_metadata import ListenerMetadata
from klamm_broker.kafka.requests import Request
from klamm_server.runtime.sliced_work import map_in_slices


@api(ApiKey.FIND_COORDINATOR, Versions(0, 6, flexible=3), rights_of="Broker/FindCoordinator")
async def find_coordinator(request: Request, body: Any, finder: CoordinatorFinder, cluster: ListenerMetadata) -> Fields:
    """Returns a live broker as the coordinator of each key, if the shard's owner is available."""
    keys = list(body.coordinator_keys) if request.version >= 4 else [body.key]
    # The numbers of key types are equal in Kafka and Klamm.
    key_type: int = getattr(body, "key_type", 0)
    found = await map_in_slices(lambda key: _found(key_type, key, finder, cluster), keys)
    return {"coordinators": found} if request.version >= 4 else found[0]


def _found(key_type: int, key: str, finder: CoordinatorFinder, cluster: ListenerMetadata) -> Fields:
    try:
        finder.owner(key_type, key)
        broker = cluster.coordinator_of(key)
        if broker is None:
            raise ErrorCode.COORDINATOR_NOT_AVAILABLE.exception("no broker is live")
    except BrokerError as error:
        return {
            "key": key,
            "node_id": -1,
            "host": "",
            "port": -1,
            "error_code": error.code,
            "error_message": error.message or None,
        }
    return {
        "key": key,
        "node_id": broker.broker_id,
        "host": broker.host,
        "port": broker.port,
        "error_code": ErrorCode.NONE,
        "error_message": None,
    }


def check_is_coordinator(cluster: ListenerMetadata, key: str) -> None:
    """Raises NotCoordinatorError if clients are sent to another broker for this group or transactional id. An empty id
    is refused later, as invalid."""
    if key and not cluster.coordinated_here([key]):
        raise ErrorCode.NOT_COORDINATOR.exception(f"broker {cluster.broker_id} is not the coordinator of {key!r}")
