"""FindCoordinator: Kafka clients are sent to a broker, which passes on what they ask.

What clients can rely on:

- A group or transactional id has one coordinator, one of the live brokers with the client's listener. Brokers that have
  read the same metadata name the same one. It does not depend on which coordinator process owns the id's shard: when a
  coordinator process dies the broker stays, and passes on what it is asked to the next owner.
- It changes only when a broker comes or goes, and then for most ids. Members and producers need not notice. What they
  send (joins, heartbeats, commits, all of a transaction) any broker passes on, for nothing depends on which broker does
  so: the shard's owner decides. Kafka refuses it elsewhere, because there the broker is the owner; here a refusal would
  only break off groups and transactions whenever a broker is added.
- Lists, descriptions and deletions are the coordinator's alone, as in Kafka: clients ask every broker and join the
  answers. `check_is_coordinator` refuses the rest with NOT_COORDINATOR, upon which a client asks FindCoordinator again.
  While one broker has read more metadata than another they may name different ones; they agree as soon as both have
  read the same. A broker that is cut off from the controllers' log may name the wrong one until it reads the log again,
  as in Kafka.
"""

from __future__ import annotations

from typing import Any

from klamm.errors import BrokerError, ErrorCode
from klamm_broker.handlers.find_coordinator import CoordinatorFinder
from klamm_broker.kafka.messages import Fields
from klamm_broker.kafka.requests import Request
from klamm_broker.kafka.seen_cluster import SeenCluster


async def find_coordinator(request: Request, wanted: Any, finder: CoordinatorFinder, cluster: SeenCluster) -> Fields:
    """A coordinator is some live broker, once the key's real one is there to be asked."""
    keys = list(wanted.coordinator_keys) if request.version >= 4 else [wanted.key]
    # The numbers are Kafka's on both sides.
    key_type: int = getattr(wanted, "key_type", 0)
    found = [_found(key_type, key, finder, cluster) for key in keys]
    return {"coordinators": found} if request.version >= 4 else found[0]


def _found(key_type: int, key: str, finder: CoordinatorFinder, cluster: SeenCluster) -> Fields:
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


def check_is_coordinator(cluster: SeenCluster, key: str) -> None:
    """Raises NotCoordinatorError where clients are sent to another broker for a group or transactional id. An empty one
    is refused further on, as no id."""
    if key and not cluster.coordinated_here([key]):
        raise ErrorCode.NOT_COORDINATOR.exception(f"broker {cluster.broker_id} is not the coordinator of {key!r}")
