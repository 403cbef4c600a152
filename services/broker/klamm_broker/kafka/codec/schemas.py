"""The schemas of requests and answers by API and version. They are kio's, and those of Kafka 4.4 that kio lacks.

The schemas here are dataclasses in kio's form. Each adds the fields of one version to the last version that kio has.
Sources: Kafka's message definitions for DeleteGroups 3, TxnOffsetCommit 6 (KIP-1319) and ApiVersions 5 (KIP-1242).

kio evaluates the types of fields directly, so annotations must not be strings here.
"""

import uuid
from dataclasses import dataclass, field
from typing import Any, Final

from kio import index
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import ApiVersionsResponse
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse
from kio.schema.txn_offset_commit.v5.request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kio.schema.txn_offset_commit.v5.response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kio.static.primitive import i16, i32

from klamm_broker.kafka.api import ApiKey


@dataclass(frozen=True, slots=True, kw_only=True)
class _ApiVersionsRequest5(ApiVersionsRequest):
    """Adds the cluster and node that the client expects at this address."""

    __version__ = i16(5)
    cluster_id: str | None = field(metadata={"kafka_type": "string"}, default=None)
    node_id: i32 = field(metadata={"kafka_type": "int32"}, default=i32(-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _DeletableGroupResult3(DeletableGroupResult):
    __version__ = i16(3)
    error_message: str | None = field(metadata={"kafka_type": "string"}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _DeleteGroupsResponse3(DeleteGroupsResponse):
    """Adds a message to the error of each group."""

    __version__ = i16(3)
    results: tuple[_DeletableGroupResult3, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _TxnOffsetCommitRequestTopic6:
    """A topic that is named by its id."""

    __type__ = TxnOffsetCommitRequestTopic.__type__
    __version__ = i16(6)
    __flexible__ = True
    __api_key__ = TxnOffsetCommitRequestTopic.__api_key__
    __header_schema__ = TxnOffsetCommitRequestTopic.__header_schema__
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[TxnOffsetCommitRequestPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _TxnOffsetCommitRequest6(TxnOffsetCommitRequest):
    __version__ = i16(6)
    topics: tuple[_TxnOffsetCommitRequestTopic6, ...]  # type: ignore[assignment]  # the newer version replaces it


@dataclass(frozen=True, slots=True, kw_only=True)
class _TxnOffsetCommitResponseTopic6:
    """A topic that is named by its id."""

    __type__ = TxnOffsetCommitResponseTopic.__type__
    __version__ = i16(6)
    __flexible__ = True
    __api_key__ = TxnOffsetCommitResponseTopic.__api_key__
    __header_schema__ = TxnOffsetCommitResponseTopic.__header_schema__
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[TxnOffsetCommitResponsePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _TxnOffsetCommitResponse6(TxnOffsetCommitResponse):
    __version__ = i16(6)
    topics: tuple[_TxnOffsetCommitResponseTopic6, ...]  # type: ignore[assignment]  # the newer version replaces it


_NEWER: Final[dict[tuple[ApiKey, int], tuple[Any, Any]]] = {
    (ApiKey.API_VERSIONS, 5): (_ApiVersionsRequest5, ApiVersionsResponse),
    (ApiKey.DELETE_GROUPS, 3): (DeleteGroupsRequest, _DeleteGroupsResponse3),
    (ApiKey.TXN_OFFSET_COMMIT, 6): (_TxnOffsetCommitRequest6, _TxnOffsetCommitResponse6),
}
"""The (request, answer) dataclasses of the versions that kio lacks."""


def request_schema(api_key: ApiKey, version: int) -> Any:
    """Returns the dataclass of a request. Raises kio's UnknownEntity if there is none."""
    newer = _NEWER.get((api_key, version))
    return index.load_request_schema(api_key, version) if newer is None else newer[0]


def response_schema(api_key: ApiKey, version: int) -> Any:
    """Returns the dataclass of an answer. Raises kio's UnknownEntity if there is none."""
    newer = _NEWER.get((api_key, version))
    return index.load_response_schema(api_key, version) if newer is None else newer[1]
