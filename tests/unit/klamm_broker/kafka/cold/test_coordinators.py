"""Tests which broker Kafka clients use as a coordinator, and which requests the others refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from klamm.errors import ErrorCode
from klamm.wire.v1 import coordinator_pb2 as pb
from klamm.wire.v1.metadata_pb2 import MetadataRecord, RegisterBrokerRecord
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.cold.consumer_groups import ConsumerGroupApis
from klamm_broker.kafka.cold.groups import GroupApis
from klamm_broker.kafka.cold.transactions import TransactionApis
from klamm_broker.kafka.listener_metadata import ListenerMetadata
from klamm_broker.kafka.topic_ids import TopicIds
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from klamm_server.net.listeners import Listener, SecurityProtocol, encode
from tests.support.cold_requests import ScriptedCoordinators, answer_of

KEYS = [f"key-{number}" for number in range(100)]
BROKERS = (1, 2, 3, 4)


def image(live: Iterable[int]) -> MetadataImage:
    """Returns an image of four brokers. Each has the listener KAFKA, and the first two have PUBLIC as well."""
    live = frozenset(live)

    def broker(broker_id: int) -> MetadataRecord:
        names = ("KAFKA", "PUBLIC") if broker_id <= 2 else ("KAFKA",)
        listeners = [Listener(name, SecurityProtocol.KAFKA, name.lower(), 9092) for name in names]
        return MetadataRecord(
            register_broker=RegisterBrokerRecord(
                broker_id=broker_id,
                broker_epoch=broker_id,
                fenced=broker_id not in live,
                listeners=encode(listeners),
            )
        )

    records = [broker(broker_id) for broker_id in BROKERS]
    return replay(MetadataImage.empty(), records, len(records))


def views(live: Iterable[int] = BROKERS, listener: str = "KAFKA") -> list[ListenerMetadata]:
    found = image(live)
    return [ListenerMetadata(lambda: found, broker_id, listener) for broker_id in BROKERS]


@pytest.mark.parametrize("listener", ["KAFKA", "PUBLIC"])
@pytest.mark.parametrize("live", [BROKERS, (1, 3, 4), (2,)])
def test_every_key_has_one_coordinator_and_all_brokers_name_it(live: tuple[int, ...], listener: str) -> None:
    seen = views(live, listener)
    owners = {broker.broker_id for broker in seen[0].brokers()}
    assert owners == {broker_id for broker_id in live if listener == "KAFKA" or broker_id <= 2}
    coordinated = {view.broker_id: view.coordinated_here(KEYS) for view in seen}
    assert sorted(key for keys in coordinated.values() for key in keys) == (sorted(KEYS) if owners else [])
    assert {broker_id for broker_id, keys in coordinated.items() if keys} == owners
    for key in KEYS:
        (named,) = {view.coordinator_of(key) for view in seen}
        assert named is None or key in coordinated[named.broker_id]


def test_without_a_live_broker_there_is_no_coordinator() -> None:
    for view in views(live=()):
        assert (view.coordinator_of("key"), view.coordinated_here(KEYS)) == (None, set())


def asked_of_every_broker(rpc: str, answer: Any, ask: Any) -> list[tuple[Any, int]]:
    """Returns each broker's answer, and how often it asked a coordinator for it."""
    found = []
    for view in views():
        coordinators = ScriptedCoordinators({rpc: answer})
        found.append((asyncio.run(ask(coordinators, view)), len(coordinators.asked)))
    return found


def test_each_group_is_listed_by_one_broker() -> None:
    def listed(_: Any) -> pb.ListGroupsResponse:
        return pb.ListGroupsResponse(groups=[pb.ListedGroup(group_id=key, type="classic") for key in KEYS])

    async def ask(coordinators: Any, view: ListenerMetadata) -> Any:
        groups = GroupApis(coordinators, TopicIds(MetadataImage.empty), view)
        return await answer_of(groups.list_groups, ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": []})

    answers = asked_of_every_broker("list_groups", listed, ask)
    assert sorted(group.group_id for answer, _ in answers for group in answer.groups) == sorted(KEYS)


def test_each_transaction_is_listed_by_one_broker() -> None:
    def listed(_: Any) -> pb.ListTransactionsResponse:
        transactions = [pb.ListedTransaction(transactional_id=key, state="Ongoing") for key in KEYS]
        return pb.ListTransactionsResponse(transactions=transactions)

    async def ask(coordinators: Any, view: ListenerMetadata) -> Any:
        transactions = TransactionApis(coordinators, view, TopicIds(MetadataImage.empty), None)
        fields = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
        return await answer_of(transactions.list_transactions, ApiKey.LIST_TRANSACTIONS, 1, fields)

    answers = asked_of_every_broker("list_transactions", listed, ask)
    found = [
        transaction_state.transactional_id for answer, _ in answers for transaction_state in answer.transaction_states
    ]
    assert sorted(found) == sorted(KEYS)


def describe_group(request: Any) -> pb.DescribeGroupsResponse:
    return pb.DescribeGroupsResponse(groups=[pb.DescribedGroup(group_id=request.group_ids[0], state="Empty")])


def describe_consumer_group(request: Any) -> pb.ConsumerGroupDescribeResponse:
    group = pb.DescribedConsumerGroup(group_id=request.group_ids[0], state="Empty")
    return pb.ConsumerGroupDescribeResponse(groups=[group])


def delete_group(request: Any) -> pb.DeleteGroupsResponse:
    return pb.DeleteGroupsResponse(results=[pb.DeletedGroup(group_id=request.group_ids[0])])


def delete_offsets(_: Any) -> pb.OffsetDeleteResponse:
    return pb.OffsetDeleteResponse()


def describe_transaction(request: Any) -> pb.DescribeTransactionsResponse:
    found = pb.DescribedTransaction(transactional_id=request.transactional_ids[0], state="Ongoing")
    return pb.DescribeTransactionsResponse(transactions=[found])


DESCRIBE = {"groups": ["key-7"], "group_ids": ["key-7"], "include_authorized_operations": False}
REFUSED = {
    ApiKey.DESCRIBE_GROUPS: ("describe_groups", describe_group, DESCRIBE, lambda answer: answer.groups[0]),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        "consumer_group_describe",
        describe_consumer_group,
        DESCRIBE,
        lambda answer: answer.groups[0],
    ),
    ApiKey.DELETE_GROUPS: (
        "delete_groups",
        delete_group,
        {"groups_names": ["key-7"]},
        lambda answer: answer.results[0],
    ),
    ApiKey.OFFSET_DELETE: ("offset_delete", delete_offsets, {"group_id": "key-7", "topics": []}, lambda answer: answer),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        "describe_transactions",
        describe_transaction,
        {"transactional_ids": ["key-7"]},
        lambda answer: answer.transaction_states[0],
    ),
}


@pytest.mark.parametrize("api_key", REFUSED)
def test_only_the_coordinators_broker_describes_and_deletes_groups_and_transactions(api_key: ApiKey) -> None:
    rpc, answer, fields, outcome = REFUSED[api_key]

    async def ask(coordinators: Any, view: ListenerMetadata) -> int:
        groups = GroupApis(coordinators, TopicIds(MetadataImage.empty), view)
        handler = {
            ApiKey.DESCRIBE_GROUPS: groups.describe_groups,
            ApiKey.CONSUMER_GROUP_DESCRIBE: ConsumerGroupApis(coordinators, view).describe,
            ApiKey.DELETE_GROUPS: groups.delete_groups,
            ApiKey.OFFSET_DELETE: groups.offset_delete,
            ApiKey.DESCRIBE_TRANSACTIONS: TransactionApis(
                coordinators,
                view,
                TopicIds(MetadataImage.empty),
                None,
            ).describe_transactions,
        }[api_key]
        code: int = outcome(await answer_of(handler, api_key, 0, fields)).error_code
        return code

    expected = [
        (ErrorCode.NONE, 1) if view.coordinated_here(["key-7"]) else (ErrorCode.NOT_COORDINATOR, 0) for view in views()
    ]
    assert asked_of_every_broker(rpc, answer, ask) == expected
