"""The declaration of each Kafka API at its handler: its key, its versions, and the rights that a client needs.

    @api(ApiKey.DELETE_GROUPS, Versions(0, 3, flexible=2), forwarded_to="Coordinator/DeleteGroups")
    async def delete_groups(self, request: Request, body: Any) -> Fields: ...

Everything else derives from the declarations: the header of a request, the answer to ApiVersions, the dispatch, the
checks of rights, and the tables of the documentation. `served_apis.py` imports all handlers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from klamm.wire import record_frames
from klamm_broker.kafka.codec.fields import Fields
from klamm_broker.kafka.codec.wire import MalformedRequestError
from klamm_server.security.operations import Check, check_of_rpc
from klamm_server.security.session import CALLER

if TYPE_CHECKING:
    from klamm_broker.kafka.requests import Request

    Handler = Callable[[Request, Any], Awaitable[Fields]]
    """A handler of a request. It gets the request and its body as decoded by kio."""

HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])

COLD_REQUEST_MAX_BYTES: Final = 8 * 1024 * 1024
"""The largest request except Produce and Fetch. The memory and the time of decoding grow with the number of items, and
an item may be a single byte."""
ITEMS_MAX: Final = 100_000
"""The most items of all arrays of a request, such as topics, partitions and groups. Kafka has no such limit."""
WHOLE_ITEMS_MAX: Final = 10_000
"""The most items of a request that is served whole, and the most partitions of a Produce or Fetch. Kafka has the same
limit for the records of a change of metadata."""


def check_count(count: int, items: str) -> None:
    """Raises MalformedRequestError if a Produce or Fetch has more than `WHOLE_ITEMS_MAX` items."""
    if count > WHOLE_ITEMS_MAX:
        raise MalformedRequestError(f"the request has {count} {items}; expected at most {WHOLE_ITEMS_MAX}")


class ApiKey(IntEnum):
    """The APIs with their numbers in Kafka's protocol, and those of Klamm's own."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    KLAMM_PRODUCE = record_frames.PRODUCE
    KLAMM_FETCH = record_frames.FETCH
    KLAMM_REPLICA_FETCH = record_frames.REPLICA_FETCH


class Versions(NamedTuple):
    """The versions of an API. The broker speaks `min` to `max`, and lists `advertised_min` to `max` in ApiVersions.
    From `flexible` on, lengths are compact (KIP-482)."""

    min: int
    max: int
    flexible: int
    unsupported_min: int | None = None
    """The lowest version that the broker lists but does not support, if there is one."""

    @property
    def advertised_min(self) -> int:
        """The lowest version that ApiVersions lists."""
        return self.min if self.unsupported_min is None else self.unsupported_min


class Api(NamedTuple):
    """A declared API."""

    key: ApiKey
    versions: Versions
    check: Check
    """The rights that a client needs."""
    forwarded_to: str
    """The RPC that the broker calls, such as `Coordinator/JoinGroup`, or "" if the broker decides by itself."""
    is_whole: bool
    """True if the items of a request are served in one turn of the event loop, here or at another server."""
    is_klamms: bool
    """True for an API of Klamm's own. ApiVersions does not list it, because Kafka clients do not know it."""
    refused: Callable[[Any], Fields] | None
    """Makes the answer to a client that lacks the right to the cluster, from the decoded request. None if the handler
    or the other server answers that."""

    async def answer(self, handler: Handler, request: Request, body: Any) -> Fields:
        """Returns the handler's answer to a decoded request, or the refusal of a caller that lacks the declared right
        to the cluster."""
        refused = self._refusal(body)
        return await handler(request, body) if refused is None else refused

    def _refusal(self, body: Any) -> Fields | None:
        """Returns the answer to a caller that lacks the declared right to the cluster, or None. If another server
        checks the right again, the audit of this server records only a refusal."""
        caller = CALLER.get()
        needed = self.check.of_cluster
        if caller is None or self.refused is None or not needed:
            return None
        if self.forwarded_to and caller.may_be_shown_with_cluster(*needed):
            return None
        return None if caller.may_with_cluster(*needed) else self.refused(body)


APIS: Final[dict[ApiKey, Api]] = {}
"""The declared APIs by their keys. It is complete after the import of `served_apis`."""


def api(
    key: ApiKey,
    versions: Versions,
    check: Check | None = None,
    *,
    forwarded_to: str = "",
    rights_of: str = "",
    is_whole: bool = False,
    is_klamms: bool = False,
    refused: Callable[[Any], Fields] | None = None,
) -> Callable[[HandlerT], HandlerT]:
    """Declares the handler of an API (`Api`). The API needs the rights of the RPC to which it is forwarded, or that
    does the same (`rights_of`), or else has a `check` of its own."""
    assert key not in APIS, key
    if check is None:
        check = check_of_rpc(f"/klamm.v1.{forwarded_to or rights_of}")
    APIS[key] = declared = Api(key, versions, check, forwarded_to, is_whole, is_klamms, refused)

    def declare(handler: HandlerT) -> HandlerT:
        handler.__dict__["api"] = declared
        return handler

    return declare


def items_max(api_key: ApiKey) -> int:
    """Returns the most items of all arrays of a request."""
    return WHOLE_ITEMS_MAX if APIS[api_key].is_whole else ITEMS_MAX


def handlers_of(*sources: Any) -> dict[ApiKey, Callable[..., Any]]:
    """Returns the declared handlers by their keys. A source is a partial of a declared function, or an object with
    declared methods."""
    found: dict[ApiKey, Callable[..., Any]] = {}
    for source in sources:
        if isinstance(source, partial):
            found[source.func.__dict__["api"].key] = source
            continue
        for name, member in vars(type(source)).items():
            if (declared := getattr(member, "api", None)) is not None:
                found[declared.key] = getattr(source, name)
    return found
