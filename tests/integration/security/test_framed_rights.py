"""Tests the rights of clients whose records pass the Kafka listener in Klamm's own messages."""

from __future__ import annotations

from collections.abc import Sequence

from klamm import NewTopic
from klamm.acls import AclBindingFilter, AclOperation, ResourceType
from klamm.errors import ErrorCode
from klamm.records.encoder import encode_batch
from klamm.wire.framed import decode_framed, framed_start
from klamm.wire.record_frames import FETCH, PRODUCE, VERSION, request_start
from klamm.wire.v1.broker_pb2 import (
    FetchedPartition,
    FetchHeader,
    FetchPartition,
    FetchRequest,
    ProducedPartition,
    ProduceHeader,
    ProducePartition,
    ProduceResponse,
)
from tests.support.authorized_cluster import AuthorizedCluster, allow
from tests.support.canary_cluster import CanaryCluster
from tests.support.waiting import patience, wait_until

WRITER = "framed-writer"
TOPIC, READ, MISSING = "framed", "framed-read", "framed-missing"
BATCH = encode_batch([(0, b"k", b"v", ())])
TIMEOUT_MS = int(patience() * 1_000)


def asked(cluster: AuthorizedCluster, api_key: int, *pieces: bytes) -> bytes:
    """Returns the answer to a request of `User:WRITER` at the Kafka listener."""
    with cluster.wire(WRITER) as wire:
        return wire.ask_frame(request_start(api_key, VERSION, 1, "me", sum(map(len, pieces))) + b"".join(pieces))[4:]


def produced(cluster: AuthorizedCluster, *topics: str, transactional_id: str = "") -> Sequence[ProducedPartition]:
    """Returns the answers to a produce of one record for each topic."""
    parts = [ProducePartition(topic=topic, records_bytes=len(BATCH)) for topic in topics]
    header = ProduceHeader(acks=1, timeout_ms=TIMEOUT_MS, transactional_id=transactional_id, partitions=parts)
    start = framed_start(header, len(BATCH) * len(parts))
    return ProduceResponse.FromString(asked(cluster, PRODUCE, start, *[BATCH] * len(parts))).partitions


def fetched(cluster: AuthorizedCluster, *topics: str) -> Sequence[FetchedPartition]:
    """Returns the answers to a fetch from each topic."""
    request = FetchRequest(replica_id=-1, partitions=[FetchPartition(topic=topic) for topic in topics])
    header, _ = decode_framed(asked(cluster, FETCH, request.SerializeToString()), FetchHeader)
    return header.partitions


def test_a_producer_writes_with_the_right_only(canary: CanaryCluster) -> None:
    cluster = canary.cluster
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(TOPIC, partition_count=1, replication_factor=1)])
    refused, missing = produced(cluster, TOPIC, MISSING)
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert str(refused).replace(TOPIC, MISSING) == str(missing)
    entry = allow(WRITER, AclOperation.WRITE, ResourceType.TOPIC, TOPIC)
    with cluster.admin() as admin:
        admin.create_acls([entry])
    wait_until(lambda: not produced(cluster, TOPIC)[0].error_code, cluster.logs)
    (refused,) = produced(cluster, TOPIC, transactional_id="framed-transaction")
    assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    with cluster.admin() as admin:
        admin.delete_acls([AclBindingFilter(*entry)])
    wait_until(lambda: produced(cluster, TOPIC)[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED, cluster.logs)


def test_a_consumer_reads_with_the_right_only(canary: CanaryCluster) -> None:
    cluster = canary.cluster
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(READ, partition_count=1, replication_factor=1)])
    refused, missing = fetched(cluster, READ, MISSING)
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert str(refused).replace(READ, MISSING) == str(missing)
    entry = allow(WRITER, AclOperation.READ, ResourceType.TOPIC, READ)
    with cluster.admin() as admin:
        admin.create_acls([entry])
    wait_until(lambda: not fetched(cluster, READ)[0].error_code, cluster.logs)
    with cluster.admin() as admin:
        admin.delete_acls([AclBindingFilter(*entry)])
    wait_until(lambda: fetched(cluster, READ)[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED, cluster.logs)
