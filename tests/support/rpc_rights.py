"""Requests of every RPC of the contracts, each with its needs, for tests that give a client one right at a time
(`single_rights.py`). The needs are those of the RPC's row in `klamm_server.security.operations`.

A request is that of `every_rpc.py`, if no case here has another one. It changes nothing that another request needs,
even if it is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from klamm.acls import ANONYMOUS
from klamm.errors import ErrorCode
from klamm.model import GROUP_METADATA_TOPIC
from klamm.wire.v1 import broker_pb2 as broker
from klamm.wire.v1 import controller_pb2 as controller
from klamm.wire.v1 import coordinator_pb2 as coordinator
from klamm.wire.v1.common_pb2 import TopicPartitions
from klamm.wire.v1.metadata_pb2 import (
    CONFIG_RESOURCE_TYPE_BROKER,
    CONFIG_RESOURCE_TYPE_GROUP,
    CONFIG_RESOURCE_TYPE_TOPIC,
)
from klamm_server.security.gate import FORWARDED
from klamm_server.security.operations import check_of_rpc
from tests.support.broker_harness import batch
from tests.support.canary_cluster import CANARY
from tests.support.every_rpc import Caller, codes_of, every_rpc
from tests.support.kafka_rights import (
    ABSENT,
    ABSENT_GROUP,
    ABSENT_ID,
    CLASSIC,
    DOOMED,
    OPEN_ID,
    KafkaThings,
    transactional_batch,
)
from tests.support.single_rights import GROUP, ID, OPENED, SERVERS, Case, needs_of, refusals_of

NOT_SERVED: Final = "not served"
_RPCS: Final = {rpc.path: rpc for rpc in every_rpc()}
_FREE: Final = f"{ID}-free-grpc"
_NAMES: Final = {"group_id": GROUP, "transactional_id": ID}
"""The values of fields of messages, where `every_rpc.py` has the topic's name. A list has the name with an `s`."""


def rpc_cases(things: KafkaThings) -> list[Case]:
    """Returns the cases of every RPC. Each need of an RPC's row is in at least one of its cases."""
    special = [*_broker(things), *_admin(things), *_coordinator(things)]
    paths = {case.call for case in special}
    return [*special, *(_case(path) for path in _RPCS if path not in paths)]


def call(caller: Caller, case: Case, host: str) -> str:
    """Returns the outcome of the case for the client at `host`, whose call the caller passes on as a server."""
    rpc = _RPCS[case.call]
    forwarded = () if host == SERVERS else ((FORWARDED, f"{host}\n{ANONYMOUS}".encode()),)
    try:
        answer = caller.first_answer(rpc, case.request(), forwarded)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return NOT_SERVED
        is_refused = error.code() is grpc.StatusCode.PERMISSION_DENIED
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED.name if is_refused else OPENED
    # A stream to a server that does not exist ends without an answer.
    return OPENED if answer is None else case.outcome(codes_of(answer), answer)


def server_of(path: str) -> str:
    """Returns the kind of the server that answers the RPC."""
    service = path.split("/")[1].rpartition(".")[2]
    return {"Broker": "broker", "Replication": "broker", "Coordinator": "coordinator"}.get(service, "controller")


def _case(
    path: str,
    about: str = "",
    message: Message | None = None,
    *,
    needs: tuple[int, ...] | None = None,
    shows: Callable[[Any], bool] | None = None,
    renew: Callable[[], None] | None = None,
) -> Case:
    row = needs_of(check_of_rpc(path))
    its_needs = row if needs is None else tuple(row[place] for place in needs)
    data = (_message(path) if message is None else message).SerializeToString()
    return Case(path, about, its_needs, lambda: data, refusals_of(its_needs), shows=shows, renew=renew)


def _message(path: str) -> Message:
    """Returns the message of `every_rpc.py` with the names of a group and a transactional id for that of the topic."""
    message = _RPCS[path].message(CANARY)
    for name, value in _NAMES.items():
        if name in message.DESCRIPTOR.fields_by_name:
            setattr(message, name, value)
        elif f"{name}s" in message.DESCRIPTOR.fields_by_name:
            getattr(message, f"{name}s")[:] = [value]
    return message


def _broker(things: KafkaThings) -> Iterator[Case]:
    service = "/klamm.v1.Broker"
    asked = broker.MetadataRequest
    yield _case(f"{service}/Metadata", "", asked(topics=[CANARY]), needs=(0,))
    yield _case(f"{service}/Metadata", "of all topics", asked(all_topics=True), needs=(1,), shows=_shows_canary)
    missing = asked(allow_auto_topic_creation=True)
    yield _case(f"{service}/Metadata", "of a missing topic", missing, needs=(0, 2))._replace(
        request=lambda: asked(topics=[things.new_name()], allow_auto_topic_creation=True).SerializeToString()
    )
    keys = [
        ("of a group", broker.COORDINATOR_KEY_TYPE_GROUP, GROUP),
        ("of a transactional id", broker.COORDINATOR_KEY_TYPE_TRANSACTION, ID),
    ]
    for place, (about, key_type, key) in enumerate(keys):
        request = broker.FindCoordinatorRequest(key_type=key_type, keys=[key])
        yield _case(f"{service}/FindCoordinator", about, request, needs=(place,))
    for name in ("Produce", "ProduceStream"):
        yield _case(f"{service}/{name}", "", _produce(CANARY, batch()), needs=(1,))
        in_transaction = _produce(CANARY, transactional_batch(), ID)
        yield _case(f"{service}/{name}", "in a transaction", in_transaction, needs=(0, 1))
        internal = _produce(GROUP_METADATA_TOPIC, batch())
        yield _case(f"{service}/{name}", "to an internal topic", internal, needs=(2,))
    for about, topic, need in (("", CANARY, 0), ("to an internal topic", GROUP_METADATA_TOPIC, 1)):
        plain = broker.ProduceRecordsRequest(topic=topic, partition=0, records=[broker.PlainRecord(value=b"plain")])
        yield _case(f"{service}/ProduceRecords", about, plain, needs=(need,))
    deletion = broker.DeleteRecordsPartition(topic=CANARY, partition=0, before_offset=0)
    yield _case(f"{service}/DeleteRecords", "", broker.DeleteRecordsRequest(partitions=[deletion], timeout_ms=30_000))


def _produce(topic: str, records: bytes, transactional_id: str = "") -> Message:
    partition = broker.ProducePartition(topic=topic, partition=0, records_bytes=len(records))
    header = broker.ProduceHeader(acks=-1, timeout_ms=30_000, partitions=[partition], transactional_id=transactional_id)
    return broker.ProduceRequest(header=header, records=records)


def _admin(things: KafkaThings) -> Iterator[Case]:
    service = "/klamm.v1.Admin"
    topic = controller.NewTopic(name=ABSENT, partition_count=1, replication_factor=1)
    yield _case(
        f"{service}/CreateTopics",
        "",
        controller.CreateTopicsRequest(topics=[topic], validate_only=True, timeout_ms=30_000),
        shows=lambda answer: answer.topics[0].partition_count == 1,
    )
    deletion = controller.DeleteTopicsRequest(topics=[DOOMED], timeout_ms=30_000)
    yield _case(f"{service}/DeleteTopics", "", deletion, needs=(0,), renew=things.renew_doomed)
    deletion = controller.DeleteTopicsRequest(topics=[ABSENT], timeout_ms=30_000)
    yield _case(f"{service}/DeleteTopics", "of a missing topic", deletion, needs=(1,))
    growth = controller.NewPartitions(topic=CANARY, total_count=9)
    yield _case(
        f"{service}/CreatePartitions",
        "",
        controller.CreatePartitionsRequest(topics=[growth], validate_only=True, timeout_ms=30_000),
    )
    yield _case(f"{service}/DescribeTopics", "", controller.DescribeTopicsRequest(topics=[CANARY]), needs=(0,))
    yield _case(
        f"{service}/DescribeTopics",
        "of all topics",
        controller.DescribeTopicsRequest(),
        needs=(1,),
        shows=_shows_canary,
    )
    kinds = [
        ("of a topic", CONFIG_RESOURCE_TYPE_TOPIC, CANARY, controller.ConfigChange(name="retention.ms", value="1000")),
        ("of a group", CONFIG_RESOURCE_TYPE_GROUP, GROUP, controller.ConfigChange(name="x", value="1")),
        ("of a broker", CONFIG_RESOURCE_TYPE_BROKER, "1", controller.ConfigChange(name="x", value="1")),
    ]
    for place, (about, resource_type, name, change) in enumerate(kinds):
        resource = controller.ConfigResource(type=resource_type, name=name)
        described = controller.DescribeConfigsResource(resource=resource)
        request = controller.DescribeConfigsRequest(resources=[described])
        yield _case(f"{service}/DescribeConfigs", about, request, needs=(place,))
        altered = controller.AlterConfigsResource(resource=resource, changes=[change])
        alteration = controller.IncrementalAlterConfigsRequest(resources=[altered], validate_only=True)
        yield _case(f"{service}/IncrementalAlterConfigs", about, alteration, needs=(place,))


def _coordinator(things: KafkaThings) -> Iterator[Case]:
    service = "/klamm.v1.Coordinator"
    offset = coordinator.GroupOffset(topic=CANARY, offset=1, leader_epoch=-1)
    commit = coordinator.OffsetCommitRequest(group_id=CLASSIC, generation_id=-1, offsets=[offset])
    yield _case(f"{service}/OffsetCommit", "", commit)
    topic = TopicPartitions(topic=CANARY, partitions=[0])
    named = coordinator.OffsetFetchRequest(group_id=CLASSIC, topics=[topic], member_epoch=-1)
    yield _case(f"{service}/OffsetFetch", "", named, needs=(0, 1))
    yield _case(
        f"{service}/OffsetFetch",
        "of all topics",
        coordinator.OffsetFetchRequest(group_id=CLASSIC, all_topics=True, member_epoch=-1),
        needs=(0, 2),
        shows=lambda answer: bool(answer.offsets),
    )
    yield _case(
        f"{service}/DescribeGroupLag",
        "",
        coordinator.DescribeGroupLagRequest(group_ids=[CLASSIC]),
        shows=lambda answer: bool(answer.groups[0].partitions),
    )
    # Another partition than that of the offset, without which the group would end.
    other = TopicPartitions(topic=CANARY, partitions=[5])
    yield _case(f"{service}/OffsetDelete", "", coordinator.OffsetDeleteRequest(group_id=CLASSIC, topics=[other]))
    yield _case(f"{service}/DeleteGroups", "", coordinator.DeleteGroupsRequest(group_ids=[ABSENT_GROUP]))
    yield _case(f"{service}/ListGroups", "", coordinator.ListGroupsRequest(), shows=_shows_canary)
    heartbeat = coordinator.ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=5)
    heartbeat.subscribed_topic_names.names.append(CANARY)
    yield _case(f"{service}/ConsumerGroupHeartbeat", "", heartbeat)
    yield from _transactions(things, service, offset, topic)
    absent = coordinator.LedgerName(sink=ABSENT, query_id=ABSENT)
    yield _case(f"{service}/DeleteLedger", "", coordinator.DeleteLedgerRequest(ledger=absent))
    yield _case(f"{service}/ListLedgers", "", coordinator.ListLedgersRequest(), shows=_shows_canary)


def _transactions(
    things: KafkaThings, service: str, offset: coordinator.GroupOffset, topic: TopicPartitions
) -> Iterator[Case]:
    init = coordinator.InitTransactionalIdRequest(
        transactional_id=_FREE, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    yield _case(f"{service}/InitProducerId", "", init)
    in_transaction: dict[str, Any] = {"transactional_id": OPEN_ID, **things.producer}
    partitions = coordinator.AddPartitionsToTxnRequest(topics=[topic], **in_transaction)
    yield _case(f"{service}/AddPartitionsToTxn", "", partitions)
    commit = coordinator.TxnOffsetCommitRequest(
        group_id=f"{GROUP}-in-transaction", generation_id=-1, offsets=[offset], **in_transaction
    )
    yield _case(f"{service}/TxnOffsetCommit", "", commit)
    yield _case(
        f"{service}/EndTxn",
        "",
        coordinator.EndTxnRequest(transactional_id=ABSENT_ID, producer_id=1, producer_epoch=0, committed=True),
    )
    yield _case(
        f"{service}/DescribeTransactions",
        "",
        coordinator.DescribeTransactionsRequest(transactional_ids=[OPEN_ID]),
        shows=lambda answer: bool(answer.transactions[0].topics),
    )
    yield _case(
        f"{service}/ListTransactions",
        "",
        coordinator.ListTransactionsRequest(),
        shows=lambda answer: OPEN_ID in str(answer),
    )


def _shows_canary(answer: Any) -> bool:
    return CANARY in str(answer)
