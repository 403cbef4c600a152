"""Tests the rights of producers whose records come to the Kafka listener in Klamm's own messages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from klamm import NewTopic
from klamm.acls import AclBindingFilter, AclOperation, ResourceType
from klamm.config import ClientConfig
from klamm.errors import ErrorCode
from klamm.records.encoder import encode_batch
from klamm.rpc.client_records import record_dialler
from klamm.rpc.client_tls import client_tls
from klamm.rpc.kafka_listener import KafkaListener
from klamm.wire.framed import framed_pieces
from klamm.wire.record_frames import PRODUCE, VERSION
from klamm.wire.v1.broker_pb2 import ProducedPartition, ProduceHeader, ProducePartition, ProduceResponse
from tests.support.authorized_cluster import AuthorizedCluster, allow
from tests.support.canary_cluster import CanaryCluster
from tests.support.waiting import patience, wait_until

WRITER = "framed-writer"
TOPIC, MISSING = "framed", "framed-missing"
BATCH = encode_batch([(0, b"k", b"v", ())])
TIMEOUT_MS = int(patience() * 1_000)


def produced(cluster: AuthorizedCluster, *topics: str, transactional_id: str = "") -> Sequence[ProducedPartition]:
    """Returns the answers to a produce of one record for each topic."""
    config = ClientConfig.parse(cluster.klamm(WRITER))
    with cluster.admin() as admin:
        cluster_id = admin.describe_cluster().cluster_id

    async def ask() -> ProduceResponse:
        dialler = record_dialler(config, client_tls(config), None)
        dialled = await dialler.dial(KafkaListener(cluster.bootstrap, cluster_id, 1))
        parts = [ProducePartition(topic=topic, records_bytes=len(BATCH)) for topic in topics]
        header = ProduceHeader(acks=1, timeout_ms=TIMEOUT_MS, transactional_id=transactional_id, partitions=parts)
        pieces = framed_pieces(header, [BATCH] * len(parts))
        try:
            answer = await dialled.connection.call(PRODUCE, VERSION, pieces, TIMEOUT_MS)
        finally:
            dialled.connection.close()
        return ProduceResponse.FromString(bytes(answer))

    return asyncio.run(ask()).partitions


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
