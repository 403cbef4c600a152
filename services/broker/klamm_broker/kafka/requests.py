"""The header of a request, and the supported versions of each API.

The ranges are those of Kafka 4.4. As in Kafka, Produce is listed from version 0 and supported from version 3, because
librdkafka before 2.11 compresses only if it sees version 0.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm.wire import record_frames
from klamm_broker.kafka.wire import MalformedRequestError, RequestReader

if TYPE_CHECKING:
    from klamm_broker.kafka.throttle import Throttle


COLD_REQUEST_MAX_BYTES: Final = 8 * 1024 * 1024
"""The largest request except Produce and Fetch. The memory and the time of decoding grow with the number of items, and
an item may be a single byte."""
ITEMS_MAX: Final = 100_000
"""The most items of all arrays of a request, such as topics, partitions and groups. Kafka has no such limit."""
WHOLE_ITEMS_MAX: Final = 10_000
"""The most items of a request in `_WHOLE`, and the most partitions of a Produce or Fetch. Kafka has the same limit for
the records of a change of metadata."""


def check_count(count: int, items: str) -> None:
    """Raises MalformedRequestError if a Produce or Fetch has more than `WHOLE_ITEMS_MAX` items."""
    if count > WHOLE_ITEMS_MAX:
        raise MalformedRequestError(f"the request has {count} {items}; expected at most {WHOLE_ITEMS_MAX}")


class ApiKey(IntEnum):
    """The APIs with their numbers in Kafka's protocol, and those of Klamm's own client."""

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


_WHOLE: Final = frozenset(
    {
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.LIST_GROUPS,
        ApiKey.CREATE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.ADD_RAFT_VOTER,
    }
)
"""The requests whose items are served in one turn of the event loop, here or at another server."""


def items_max(api_key: ApiKey) -> int:
    """Returns the most items of all arrays of a request."""
    return WHOLE_ITEMS_MAX if api_key in _WHOLE else ITEMS_MAX


class Versions(NamedTuple):
    """The versions of an API. The broker speaks `min` to `max`, and lists `advertised_min` to `max` in ApiVersions.
    From `flexible` on, lengths are compact (KIP-482)."""

    min: int
    max: int
    flexible: int
    advertised_min: int


def _spoken(low: int, high: int, flexible: int, advertised_min: int | None = None) -> Versions:
    return Versions(low, high, flexible, low if advertised_min is None else advertised_min)


SPOKEN: Final[dict[ApiKey, Versions]] = {
    ApiKey.PRODUCE: _spoken(3, 13, 9, advertised_min=0),
    ApiKey.FETCH: _spoken(4, 18, 12),
    ApiKey.LIST_OFFSETS: _spoken(1, 11, 6),
    ApiKey.METADATA: _spoken(0, 13, 9),
    ApiKey.OFFSET_COMMIT: _spoken(2, 10, 8),
    ApiKey.OFFSET_FETCH: _spoken(1, 10, 6),
    ApiKey.FIND_COORDINATOR: _spoken(0, 6, 3),
    ApiKey.JOIN_GROUP: _spoken(0, 9, 6),
    ApiKey.HEARTBEAT: _spoken(0, 4, 4),
    ApiKey.LEAVE_GROUP: _spoken(0, 5, 4),
    ApiKey.SYNC_GROUP: _spoken(0, 5, 4),
    ApiKey.DESCRIBE_GROUPS: _spoken(0, 6, 5),
    ApiKey.LIST_GROUPS: _spoken(0, 5, 3),
    # After SaslHandshake version 0, a client sends its tokens without frames. As in Kafka, the broker lists version 0
    # but does not answer it.
    ApiKey.SASL_HANDSHAKE: _spoken(1, 1, 2, advertised_min=0),
    ApiKey.API_VERSIONS: _spoken(0, 5, 3),
    ApiKey.CREATE_TOPICS: _spoken(2, 7, 5),
    ApiKey.DELETE_TOPICS: _spoken(1, 6, 4),
    ApiKey.DELETE_RECORDS: _spoken(0, 2, 2),
    ApiKey.INIT_PRODUCER_ID: _spoken(0, 5, 2),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _spoken(2, 4, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: _spoken(0, 5, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: _spoken(0, 4, 3),
    ApiKey.END_TXN: _spoken(0, 5, 3),
    ApiKey.WRITE_TXN_MARKERS: _spoken(1, 2, 1),
    ApiKey.TXN_OFFSET_COMMIT: _spoken(0, 6, 3),
    ApiKey.DESCRIBE_ACLS: _spoken(1, 3, 2),
    ApiKey.CREATE_ACLS: _spoken(1, 3, 2),
    ApiKey.DELETE_ACLS: _spoken(1, 3, 2),
    ApiKey.DESCRIBE_CONFIGS: _spoken(1, 4, 4),
    ApiKey.ALTER_CONFIGS: _spoken(0, 2, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _spoken(1, 2, 2),
    ApiKey.DESCRIBE_LOG_DIRS: _spoken(1, 5, 2),
    ApiKey.SASL_AUTHENTICATE: _spoken(0, 2, 2),
    ApiKey.CREATE_PARTITIONS: _spoken(0, 3, 2),
    ApiKey.DELETE_GROUPS: _spoken(0, 3, 2),
    ApiKey.ELECT_LEADERS: _spoken(0, 2, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _spoken(0, 1, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _spoken(0, 1, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _spoken(0, 0, 0),
    ApiKey.OFFSET_DELETE: _spoken(0, 0, 1),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _spoken(0, 1, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: _spoken(0, 1, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _spoken(0, 0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _spoken(0, 0, 0),
    ApiKey.DESCRIBE_QUORUM: _spoken(0, 2, 0),
    ApiKey.UPDATE_FEATURES: _spoken(0, 2, 0),
    ApiKey.DESCRIBE_CLUSTER: _spoken(0, 2, 0),
    ApiKey.DESCRIBE_PRODUCERS: _spoken(0, 0, 0),
    ApiKey.UNREGISTER_BROKER: _spoken(0, 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: _spoken(0, 0, 0),
    ApiKey.LIST_TRANSACTIONS: _spoken(0, 2, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _spoken(0, 1, 0),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _spoken(0, 1, 0),
    ApiKey.LIST_CONFIG_RESOURCES: _spoken(0, 1, 0),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _spoken(0, 0, 0),
    ApiKey.ADD_RAFT_VOTER: _spoken(0, 1, 0),
    ApiKey.REMOVE_RAFT_VOTER: _spoken(0, 0, 0),
}
"""The APIs of Kafka."""
OF_KLAMM: Final[dict[ApiKey, Versions]] = {
    ApiKey.KLAMM_PRODUCE: _spoken(0, 0, 1),
    ApiKey.KLAMM_FETCH: _spoken(0, 0, 1),
}
"""The APIs of Klamm's own client. ApiVersions does not list them, because Kafka clients do not know them."""

_HEADER: Final = struct.Struct(">hhih")
"""The fields API key, version, correlation id, and the length of the client id, which is a classic string in every
version."""
_BY_NUMBER: Final = {int(api_key): (api_key, versions) for api_key, versions in (SPOKEN | OF_KLAMM).items()}


class Request(NamedTuple):
    """A received request with its parsed header."""

    api_key: ApiKey
    version: int
    correlation_id: int
    client_id: str
    client_host: str
    frame: memoryview
    """The whole frame with its header. It is valid until the request is answered."""
    body_start: int
    """The position in `frame` where the header ends."""
    flexible: bool
    """True if the request's version has compact lengths."""
    throttle: Throttle | None = None
    """The costs of the request for its client, if quotas are set."""

    @property
    def is_spoken(self) -> bool:
        """True if this broker supports the request's version."""
        _, spoken = _BY_NUMBER[self.api_key]
        return spoken.min <= self.version <= spoken.max

    @property
    def throttle_ms(self) -> int:
        """The throttle time of the answer in milliseconds, as far as it is known now."""
        return 0 if self.throttle is None else self.throttle.ms

    def body(self) -> RequestReader:
        """Returns a reader of the body."""
        return RequestReader(self.frame, flexible=self.flexible, position=self.body_start)


def parse_request(frame: memoryview, client_host: str) -> Request:
    """Parses a request's header. Raises MalformedRequestError, also for an unsupported API or version, because Kafka
    closes such connections.

    Only ApiVersions is accepted in any version, because clients find the supported versions with it."""
    if len(frame) < _HEADER.size:
        raise MalformedRequestError(
            f"the request has {len(frame)} bytes; expected at least {_HEADER.size}, the size of a header"
        )
    number, version, correlation_id, client_id_size = _HEADER.unpack_from(frame)
    served = _BY_NUMBER.get(number)
    if served is None:
        raise MalformedRequestError(f"API key {number} is not supported")
    api_key, spoken = served
    if not spoken.min <= version <= spoken.max and api_key is not ApiKey.API_VERSIONS:
        raise MalformedRequestError(
            f"version {version} of {api_key.name} is not supported; expected {spoken.min} to {spoken.max}"
        )
    reader = RequestReader(frame, flexible=version >= spoken.flexible, position=_HEADER.size)
    client_id = reader.text(client_id_size) if client_id_size > 0 else ""
    reader.skip_tagged_fields()
    return Request(
        api_key, version, correlation_id, client_id, client_host, frame, reader.position, version >= spoken.flexible
    )


def has_tagged_header(request: Request) -> bool:
    """Returns True if the answer's header ends with tagged fields. The header of ApiVersions never does (KIP-511)."""
    return request.flexible and request.api_key is not ApiKey.API_VERSIONS
