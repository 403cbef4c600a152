"""Tests a broker with an authorizer: which calls a user may make with and without an access control entry."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

import grpc
import pytest
from grpc import aio

from klamm.acls import (
    ANONYMOUS,
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from klamm.errors import ErrorCode
from klamm.wire.v1 import broker_pb2 as b
from klamm.wire.v1 import common_pb2 as common
from klamm.wire.v1 import metadata_pb2 as m
from klamm_broker.kafka.api import ApiKey
from klamm_server.security.acls.authorizer import StandardAuthorizer
from tests.support.broker_harness import (
    LONG_MS,
    RunningBroker,
    ScriptedController,
    StartBroker,
    batch,
    fetch_request,
    produce_request,
    split_fetch,
)
from tests.support.kafka_wire import KafkaWire
from tests.support.waiting import until

SECRET, MISSING = "canary", "never-there"
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
WITH_KAFKA = {"listeners": "GRPC://localhost:0,PLAINTEXT://localhost:0"}


def authorizer() -> StandardAuthorizer:
    return StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)


def entry(operation: AclOperation, resource_type: ResourceType, name: str) -> AclBinding:
    return AclBinding(resource_type, name, PatternType.LITERAL, ANONYMOUS, "*", operation, AclPermissionType.ALLOW)


async def add_entries(controller: ScriptedController, broker: RunningBroker, *acls: AclBinding) -> list[bytes]:
    """Adds the entries and waits until the broker knows them. Returns their ids."""
    ids = [uuid.uuid4().bytes for _ in acls]
    await controller.add(
        *(
            m.MetadataRecord(access_control_entry=m.AccessControlEntryRecord(id=acl_id, **acl._asdict()))
            for acl_id, acl in zip(ids, acls, strict=True)
        )
    )
    await until(lambda: _knows(broker, acls))
    return ids


async def _knows(broker: RunningBroker, acls: Sequence[AclBinding]) -> bool:
    return all(acl in broker.server._replicas.image.acls for acl in acls)


async def create_topic(controller: ScriptedController, broker: RunningBroker, name: str) -> None:
    """Creates the topic at the controller and waits until the broker hosts it. No client may ask the broker for it."""
    await controller.create_topic(name)

    async def is_hosted() -> bool:
        return any(replica.topic_partition.topic == name for replica in list(broker.server._replicas))

    await until(is_hosted)


async def ask_all_of_topic(broker: RunningBroker, topic: str) -> dict[str, Any]:
    """Returns the answer of each gRPC call about a topic. The answers do not repeat the topic's own name."""
    stub = broker.stub
    (fetched,) = split_fetch(await stub.fetch(fetch_request([(topic, 0, 0)])))
    produced = await stub.produce(produce_request([(topic, 0, batch())]))
    records = [b.PlainRecord(key=b"%d" % number) for number in range(10)]
    plain = await stub.produce_records(b.ProduceRecordsRequest(topic=topic, records=records))
    elsewhere = await stub.produce_records(b.ProduceRecordsRequest(topic=topic, partition=7, records=records))
    streamed = stub.fetch_stream(fetch_request([(topic, 0, 0)]))
    first = split_fetch(await streamed.read())
    metadata = await stub.metadata(b.MetadataRequest(topics=[topic], allow_auto_topic_creation=True))
    offsets = await stub.list_offsets(
        b.ListOffsetsRequest(partitions=[b.ListOffsetsPartition(topic=topic, timestamp_ms=-1)])
    )
    epochs = await stub.offset_for_leader_epoch(
        b.OffsetForLeaderEpochRequest(partitions=[b.EpochQuery(topic=topic, current_leader_epoch=-1)])
    )
    deleted = await stub.delete_records(
        b.DeleteRecordsRequest(partitions=[b.DeleteRecordsPartition(topic=topic, before_offset=-1)])
    )
    producers = await stub.describe_producers(
        b.DescribeProducersRequest(topics=[common.TopicPartitions(topic=topic, partitions=[0])])
    )
    answers = {
        "fetch": fetched,
        "produce": produced,
        "produce records": [plain, elsewhere],
        "fetch stream": first,
        "metadata": list(metadata.topics),
        "list offsets": offsets,
        "epochs": epochs,
        "delete records": deleted,
        "producers": producers,
    }
    return {name: str(answer).replace(topic, "TOPIC") for name, answer in answers.items()}


def test_a_topic_without_any_permission_gets_the_same_answers_as_a_missing_topic(start_broker: StartBroker) -> None:
    async def run() -> None:
        async with start_broker(authorizer=authorizer()) as (broker, controller):
            await create_topic(controller, broker, SECRET)
            there, missing = await ask_all_of_topic(broker, SECRET), await ask_all_of_topic(broker, MISSING)
            assert there == missing
            for name, answer in there.items():
                assert f"error_code: {int(DENIED)}" in answer, name
            every = await broker.stub.metadata(b.MetadataRequest(all_topics=True))
            assert list(every.topics) == []
            assert controller.created == []

    asyncio.run(run())


def test_cluster_action_allows_epoch_ends_of_all_topics(start_broker: StartBroker) -> None:
    """Apache Kafka 4.4 answers so, too."""
    topic = {"topic": SECRET, "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}

    def ask_for_epoch_end(port: int) -> object:
        with KafkaWire(f"localhost:{port}") as wire:
            answer = wire.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, {"replica_id": -1, "topics": [topic]})
        return answer.topics[0].partitions[0].error_code

    async def run() -> None:
        async with start_broker(authorizer=authorizer(), configs=WITH_KAFKA) as (broker, controller):
            await create_topic(controller, broker, SECRET)
            port = kafka_port(controller)
            assert await asyncio.to_thread(ask_for_epoch_end, port) == DENIED
            server = entry(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
            await add_entries(controller, broker, server)
            assert await asyncio.to_thread(ask_for_epoch_end, port) == ErrorCode.NONE

    asyncio.run(run())


def test_unauthorized_requests_about_other_resources_than_topics_are_refused(start_broker: StartBroker) -> None:
    async def run() -> None:
        async with start_broker(authorizer=authorizer()) as (broker, _):
            stub = broker.stub
            for key_type, code in (
                (b.COORDINATOR_KEY_TYPE_GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
                (b.COORDINATOR_KEY_TYPE_TRANSACTION, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
            ):
                found = await stub.find_coordinator(b.FindCoordinatorRequest(key_type=key_type, keys=["key"]))
                assert [coordinator.error_code for coordinator in found.coordinators] == [code]
            producer = await stub.init_producer_id(b.InitProducerIdRequest(client_id="me"))
            assert producer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            for call, request in (
                (stub.describe_log_dirs, b.DescribeLogDirsRequest()),
                (stub.alter_replica_log_dirs, b.AlterReplicaLogDirsRequest()),
                (stub.scrub_logs, b.ScrubLogsRequest()),
                (stub.describe_scrubs, b.DescribeScrubsRequest()),
                (stub.write_txn_markers, common.WriteTxnMarkersRequest()),
            ):
                with pytest.raises(aio.AioRpcError) as refused:
                    await call(request)
                assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED

    asyncio.run(run())


def test_an_acl_entry_allows_access_and_its_removal_ends_it_at_once(start_broker: StartBroker) -> None:
    async def run() -> None:
        async with start_broker(authorizer=authorizer()) as (broker, controller):
            await create_topic(controller, broker, SECRET)
            write = entry(AclOperation.WRITE, ResourceType.TOPIC, SECRET)
            read = entry(AclOperation.READ, ResourceType.TOPIC, SECRET)
            _, read_id = await add_entries(controller, broker, write, read)
            assert (await broker.produce(SECRET, batch())).error_code == 0
            answer, records = await broker.fetch(SECRET)
            assert not answer.error_code
            assert records
            every = await broker.stub.metadata(b.MetadataRequest(all_topics=True))
            assert [topic.name for topic in every.topics] == [SECRET]
            producer = await broker.stub.init_producer_id(b.InitProducerIdRequest(client_id="me"))
            assert not producer.error_code, "who may write to a topic may have an id (KIP-679)"
            parked = asyncio.create_task(broker.fetch(SECRET, 1, max_wait_ms=LONG_MS))
            await until(lambda: _is_parked(broker))
            removal = m.RemoveAccessControlEntryRecord(id=read_id)
            await controller.add(m.MetadataRecord(remove_access_control_entry=removal))

            async def is_refused() -> bool:
                return (await broker.fetch(SECRET))[0].error_code == DENIED

            await until(is_refused, pause_s=0.005)
            assert (await broker.produce(SECRET, batch())).error_code == 0
            answer, records = await parked
            assert answer.error_code == DENIED
            assert not records

    asyncio.run(run())


async def _is_parked(broker: RunningBroker) -> bool:
    return broker.parked_fetches > 0


def test_a_produce_request_is_written_to_its_authorized_topics_only(start_broker: StartBroker) -> None:
    async def run() -> None:
        async with start_broker(authorizer=authorizer()) as (broker, controller):
            for name in (SECRET, "mine"):
                await create_topic(controller, broker, name)
            await add_entries(controller, broker, entry(AclOperation.WRITE, ResourceType.TOPIC, "mine"))
            parts = [(SECRET, 0, batch()), ("mine", 0, batch())]
            for request in (parts, parts[::-1]):
                answer = await broker.stub.produce(produce_request(request))
                codes = [(partition.topic, partition.error_code) for partition in answer.partitions]
                assert codes == [(name, DENIED if name == SECRET else 0) for name, _, _ in request]

    asyncio.run(run())


def kafka_port(controller: ScriptedController) -> int:
    (port,) = {
        listener.endpoint.port for listener in controller.registrations[-1].listeners if listener.name == "PLAINTEXT"
    }
    return int(port)


def test_the_kafka_listener_enforces_the_same_access_control_entries(start_broker: StartBroker) -> None:
    async def run() -> None:
        async with start_broker(authorizer=authorizer(), configs=WITH_KAFKA) as (broker, controller):
            await create_topic(controller, broker, SECRET)
            await asyncio.to_thread(ask, f"localhost:{kafka_port(controller)}", controller.topic_ids[SECRET])
            cluster = entry(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
            topic = entry(AclOperation.READ, ResourceType.TOPIC, SECRET)
            await add_entries(controller, broker, cluster, topic)
            await asyncio.to_thread(ask_with_entries, f"localhost:{kafka_port(controller)}")

    def ask(bootstrap: str, topic_id: bytes) -> None:
        with KafkaWire(bootstrap) as wire:
            by_id, by_name, missing = metadata_of(
                wire,
                {"name": None, "topic_id": uuid.UUID(bytes=topic_id)},
                {"name": SECRET, "topic_id": None},
                {"name": MISSING, "topic_id": None},
            )
            assert [int(one.error_code) for one in (by_id, by_name, missing)] == [DENIED] * 3
            assert (by_id.name, by_name.topic_id, missing.topic_id) == (None, None, None)
            assert wire.ask(ApiKey.METADATA, 12, metadata_request(None)).topics == ()
            dirs = wire.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
            assert (int(dirs.error_code), dirs.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ())
            listed = wire.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": []})
            assert int(listed.error_code) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            pages = wire.ask(
                ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [], "response_partition_limit": 9, "cursor": None}
            )
            assert pages.topics == ()

    def ask_with_entries(bootstrap: str) -> None:
        with KafkaWire(bootstrap) as wire:
            (found,) = wire.ask(ApiKey.METADATA, 12, metadata_request(None, with_operations=True)).topics
            assert found.name == SECRET
            operations = found.topic_authorized_operations
            assert operations == 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE
            assert wire.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None}).results

    asyncio.run(run())


def metadata_request(topics: list[dict[str, Any]] | None, *, with_operations: bool = False) -> dict[str, Any]:
    return {
        "topics": topics,
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": with_operations,
    }


def metadata_of(wire: KafkaWire, *topics: dict[str, Any]) -> Any:
    return wire.ask(ApiKey.METADATA, 12, metadata_request(list(topics))).topics
