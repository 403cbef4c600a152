"""ApiVersions (KIP-35, KIP-511): returns the APIs and versions of this broker, and the cluster's features (KIP-584).

The broker answers the request in every version, and before a login."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from klamm.errors import ErrorCode
from klamm.kafka_types.writer import KafkaWriter
from klamm_broker.kafka.api import ApiKey, Versions, api
from klamm_broker.kafka.codec.wire import AnswerWriter
from klamm_broker.kafka.cold.features import LEVELS
from klamm_broker.kafka.requests import Request
from klamm_server.security.operations import Check

_VERSIONS: Final = Versions(0, 5, flexible=3)
_SUPPORTED_TAG: Final = 0
_EPOCH_TAG: Final = 1
_FINALIZED_TAG: Final = 2
_FEATURES_SINCE: Final = 3
_SOFTWARE_SINCE: Final = 3
_MEANT_NODE_SINCE: Final = 5
_ANY_NODE: Final = -1
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@api(ApiKey.API_VERSIONS, _VERSIONS, Check())
def api_versions(
    request: Request, spoken: Mapping[ApiKey, Versions], features_epoch: int, cluster_id: str, node_id: int
) -> AnswerWriter:
    """Answers a client of the node `node_id` in the cluster `cluster_id`. `features_epoch` never decreases, because
    clients trust the broker with the greatest epoch. `spoken` has the versions of each API.

    A client that expects another node at this address gets REBOOTSTRAP_REQUIRED (KIP-1242), because addresses can
    change owners. An unsupported version gets an answer of version 0, which every client can read, with the supported
    versions of ApiVersions."""
    if not request.is_spoken:
        return _answer(0, ErrorCode.UNSUPPORTED_VERSION, [(ApiKey.API_VERSIONS, _VERSIONS)], (), 0)
    if request.version >= _SOFTWARE_SINCE:
        code = _error(request, cluster_id, node_id)
        if code is not ErrorCode.NONE:
            return _answer(request.version, code, [], (), request.throttle_ms)
    features = _features(features_epoch) if request.version >= _FEATURES_SINCE else ()
    return _answer(request.version, ErrorCode.NONE, tuple(spoken.items()), features, request.throttle_ms)


def _error(request: Request, cluster_id: str, node_id: int) -> ErrorCode:
    """Returns INVALID_REQUEST if the client's name or version is illegal (KIP-511). A client must also name both its
    cluster and its node, or neither (KIP-1242). Raises MalformedRequestError."""
    reader = request.body()
    names = [reader.string(), reader.string()]
    if not all(map(_SOFTWARE.fullmatch, names)):
        return ErrorCode.INVALID_REQUEST
    if request.version < _MEANT_NODE_SINCE:
        return ErrorCode.NONE
    meant_cluster, meant_node = reader.nullable_string(), reader.int32()
    if (meant_cluster is None) != (meant_node == _ANY_NODE):
        return ErrorCode.INVALID_REQUEST
    is_meant = meant_cluster is None or (meant_cluster, meant_node) == (cluster_id, node_id)
    return ErrorCode.NONE if is_meant else ErrorCode.REBOOTSTRAP_REQUIRED


def _answer(
    version: int,
    code: ErrorCode,
    listed: Sequence[tuple[ApiKey, Versions]],
    features: Sequence[tuple[int, bytes]],
    throttle_ms: int,
) -> AnswerWriter:
    writer = AnswerWriter(flexible=version >= _VERSIONS.flexible)
    writer.int16(code)

    def write(entry: tuple[ApiKey, Versions]) -> None:
        api_key, versions = entry
        writer.int16(api_key)
        writer.int16(versions.advertised_min)
        writer.int16(versions.max)
        writer.tagged_fields()

    writer.array(listed, write)
    if version >= 1:
        writer.int32(throttle_ms)
    writer.tagged_fields(features)
    return writer


def _features(epoch: int) -> list[tuple[int, bytes]]:
    """Returns the fields of supported and finalized features. They are equal, because each feature has only one
    level."""
    levels = KafkaWriter(flexible=True)
    levels.array_size(len(LEVELS))
    for name, level in sorted(LEVELS.items()):
        levels.string(name)
        levels.int16(level)
        levels.int16(level)
        levels.tagged_fields()
    encoded = levels.value()
    return [(_SUPPORTED_TAG, encoded), (_EPOCH_TAG, epoch.to_bytes(8, "big")), (_FINALIZED_TAG, encoded)]
