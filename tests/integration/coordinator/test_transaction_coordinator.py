"""Tests the transaction coordinator over gRPC: its shards in a broker's log, markers in partitions, changing owners.

It also tests several coordinators: shards of both internal topics follow the live coordinators, and nothing is lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from klamm.errors import ErrorCode
from klamm.model import GROUP_METADATA_TOPIC, SHARD_TOPICS, TRANSACTION_STATE_TOPIC
from klamm.wire.v1.broker_pb2 import COORDINATOR_KEY_TYPE_TRANSACTION, DescribeProducersRequest
from klamm.wire.v1.common_pb2 import TopicPartitions
from klamm.wire.v1.coordinator_pb2 import (
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    GroupOffset,
    InitTransactionalIdRequest,
    ListTransactionsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
)
from klamm_coordinator.transaction_shard.shard_topic import TRANSACTIONS
from klamm_server.metadata.image import MetadataImage
from tests.support.coordinator_cluster import SHARD_COUNT, Cluster, cluster, error_of, eventually
from tests.support.lost_markers import LostMarkersTransport

ID = "payments"
PRODUCER = tuple[int, int]


async def ask(running: Cluster, rpc: str, request: Any, transactional_id: str = ID) -> Any:
    """Asks the coordinator that owns the id now, and retries until operations in progress have ended."""

    async def call() -> Any:
        response = await running.ask(transactional_id, rpc, request, COORDINATOR_KEY_TYPE_TRANSACTION)
        return None if error_of(response) == ErrorCode.CONCURRENT_TRANSACTIONS else response

    return await eventually(call)


async def init(running: Cluster, transactional_id: str = ID, timeout_ms: int = 60_000) -> PRODUCER:
    request = InitTransactionalIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
    )
    response = await ask(running, "init_producer_id", request, transactional_id)
    assert not response.error_code, response
    return response.producer_id, response.producer_epoch


async def add(running: Cluster, producer: PRODUCER, *numbers: int, transactional_id: str = ID) -> int:
    request = AddPartitionsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=[TopicPartitions(topic="t", partitions=numbers)],
    )
    response = await ask(running, "add_partitions_to_txn", request, transactional_id)
    return response.error_code or error_of(response)


async def end(running: Cluster, producer: PRODUCER, *, committed: bool = True, transactional_id: str = ID) -> Any:
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=committed,
        bump_epoch=True,
    )
    return await ask(running, "end_txn", request, transactional_id)


async def describe(running: Cluster, transactional_id: str = ID) -> Any:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    (described,) = (await ask(running, "describe_transactions", request, transactional_id)).transactions
    return described


async def in_state(running: Cluster, state: str, transactional_id: str = ID) -> Any:
    """Waits until the transaction is in that state, and returns its description."""

    async def look() -> Any:
        described = await describe(running, transactional_id)
        return described if described.state == state else None

    return await eventually(look)


async def epoch_in(running: Cluster, partition: int, producer_id: int) -> int:
    """Returns the producer's epoch that the partition knows, or -1 if it knows none."""
    request = DescribeProducersRequest(topics=[TopicPartitions(topic="t", partitions=[partition])])
    (described,) = (await running.broker_stub().describe_producers(request)).partitions
    assert not described.error_code, described
    return next(
        (producer.producer_epoch for producer in described.producers if producer.producer_id == producer_id), -1
    )


def image_of(running: Cluster) -> MetadataImage:
    return running.broker.server.loaded_image()


def test_a_transaction_begins_is_listed_and_completes_with_its_markers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as running:
            producer = await init(running)
            assert producer[1] == 0
            assert await add(running, producer, 0, 2) == 0
            described = await describe(running)
            assert (described.state, described.producer_epoch) == ("Ongoing", 0)
            assert [(topic.topic, list(topic.partitions)) for topic in described.topics] == [("t", [0, 2])]

            ended = await end(running, producer)

            assert (ended.producer_id, ended.producer_epoch) == (producer[0], 1)
            await in_state(running, "CompleteCommit")
            assert [await epoch_in(running, number, producer[0]) for number in range(3)] == [1, -1, 1]
            listed = await ask(running, "list_transactions", ListTransactionsRequest(states=["completecommit"]))
            assert [(transaction.transactional_id, transaction.state) for transaction in listed.transactions] == [
                (ID, "CompleteCommit")
            ]
            nothing = await ask(running, "list_transactions", ListTransactionsRequest(states=["Ongoing"]))
            assert (nothing.error_code, list(nothing.transactions)) == (0, [])
            for pattern, found in ((f".*{ID[1:]}", [ID]), (ID[:1], []), ("(", None)):
                asked = ListTransactionsRequest(transactional_id_pattern=pattern)
                answer = await ask(running, "list_transactions", asked)
                if found is None:
                    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
                else:
                    assert [transaction.transactional_id for transaction in answer.transactions] == found

    asyncio.run(scenario())


def test_a_newer_producer_fences_the_former_one_and_aborts_its_open_transaction(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as running:
            former = await init(running)
            await add(running, former, 1)

            latter = await init(running)

            assert latter == (former[0], 2)
            assert await epoch_in(running, 1, former[0]) == 1
            assert await add(running, former, 1) == ErrorCode.PRODUCER_FENCED
            assert (await end(running, former)).error_code == ErrorCode.PRODUCER_FENCED
            assert await add(running, latter, 1) == 0

    asyncio.run(scenario())


def test_an_open_transaction_is_aborted_after_its_timeout(tmp_path: Path) -> None:
    async def scenario() -> None:
        interval = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"}
        async with cluster(tmp_path, **interval) as running:
            producer = await init(running, timeout_ms=100)
            await add(running, producer, 0)
            await in_state(running, "CompleteAbort")
            assert await epoch_in(running, 0, producer[0]) == 1
            assert await add(running, producer, 0) == ErrorCode.TRANSACTION_ABORTABLE
            assert (await end(running, producer, committed=False)).producer_epoch == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("committed", [True, False])
def test_the_next_coordinator_writes_the_markers_of_a_decided_transaction(tmp_path: Path, committed: bool) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, with_coordinator=False) as running:
            await running.start_coordinator(1, transport=LostMarkersTransport(tls=None))
            producer = await init(running)
            await add(running, producer, 0, 3)
            assert (await end(running, producer, committed=committed)).error_code == 0
            assert (await describe(running)).state == ("PrepareCommit" if committed else "PrepareAbort")
            assert await epoch_in(running, 0, producer[0]) == -1

            await running.coordinators.pop(1).crash()
            await running.start_coordinator(2)

            await in_state(running, "CompleteCommit" if committed else "CompleteAbort")
            assert [await epoch_in(running, number, producer[0]) for number in (0, 3)] == [1, 1]
            assert (await end(running, producer, committed=committed)).producer_epoch == 1, "a repeated request"
            assert await add(running, (producer[0], 1), 0) == 0

    asyncio.run(scenario())


def test_a_coordinator_that_lost_its_shard_cannot_end_a_transaction(tmp_path: Path) -> None:
    """The replaced owner still believes that it owns the shard."""

    async def scenario() -> None:
        async with cluster(tmp_path) as running:
            producer = await init(running)
            await add(running, producer, 0)
            host = running.coordinators[1].server.coordinator.transaction_shards.of_key(ID)
            await running.claim_for_a_successor(TRANSACTIONS, host.number)

            response = await running.coordinator(1).end_txn(
                EndTxnRequest(
                    transactional_id=ID, producer_id=producer[0], producer_epoch=0, committed=True, bump_epoch=True
                )
            )

            assert response.error_code == ErrorCode.NOT_COORDINATOR
            assert not host.is_loaded
            assert await epoch_in(running, 0, producer[0]) == -1

    asyncio.run(scenario())


def test_shards_stay_evenly_shared_when_coordinators_join_die_and_stop_and_lose_nothing(tmp_path: Path) -> None:
    """A coordinator joins, is killed (kill -9), joins again and stops gracefully.

    Each step leaves even shares and loses nothing.
    """
    names = [f"name-{number}" for number in range(2 * SHARD_COUNT)]

    async def shared_among(running: Cluster, *coordinator_ids: int) -> bool:
        """Waits until each of these coordinators owns its even share of each topic, and no other one owns a shard."""
        share = SHARD_COUNT // len(coordinator_ids)
        wanted = {(topic, coordinator_id): share for topic in SHARD_TOPICS for coordinator_id in coordinator_ids}

        async def look() -> bool | None:
            shards = image_of(running).shards.items()
            return Counter((topic, shard.coordinator_id) for (topic, _), shard in shards) == wanted or None

        return await eventually(look)

    async def offset_of(running: Cluster, name: str) -> int:
        request = OffsetFetchRequest(group_id=name, topics=[TopicPartitions(topic="t", partitions=[0])])
        response = await running.ask(name, "offset_fetch", request)
        assert not response.error_code, response
        return response.offsets[0].offset

    async def check(running: Cluster, offset: int, producers: dict[str, PRODUCER]) -> None:
        for name in names:
            assert await offset_of(running, name) == offset
            described = await describe(running, name)
            assert (described.state, described.producer_id, described.producer_epoch) == ("Ongoing", *producers[name])

    async def go_on(running: Cluster, offset: int, producers: dict[str, PRODUCER]) -> None:
        """Commits an offset and a transaction under every name, and begins each producer's next transaction."""
        for name in names:
            new = GroupOffset(topic="t", partition=0, offset=offset, leader_epoch=-1)
            request = OffsetCommitRequest(group_id=name, generation_id=-1, offsets=[new])
            assert error_of(await running.ask(name, "offset_commit", request)) == 0
            ended = await end(running, producers[name], transactional_id=name)
            assert not ended.error_code, ended
            producers[name] = ended.producer_id, ended.producer_epoch
            assert await add(running, producers[name], 0, transactional_id=name) == 0

    async def scenario() -> None:
        async with cluster(tmp_path) as running:
            producers = {name: await init(running, name) for name in names}
            for name in names:
                assert await add(running, producers[name], 1, transactional_id=name) == 0
            await go_on(running, 1, producers)

            await running.start_coordinator(2)
            assert await shared_among(running, 1, 2)
            await check(running, 1, producers)
            await go_on(running, 2, producers)

            await running.coordinators.pop(1).crash()
            assert await shared_among(running, 2)
            await check(running, 2, producers)
            await go_on(running, 3, producers)

            await running.start_coordinator(3)
            await running.start_coordinator(4)
            await running.start_coordinator(5)
            assert await shared_among(running, 2, 3, 4, 5)
            await check(running, 3, producers)

            await running.coordinators.pop(2).stop()
            await running.coordinators.pop(3).stop()
            assert await shared_among(running, 4, 5)
            await check(running, 3, producers)
            await go_on(running, 4, producers)
            await check(running, 4, producers)

    asyncio.run(scenario())


BAD_REQUESTS = [
    ("init_producer_id", InitTransactionalIdRequest(transaction_timeout_ms=1, producer_id=-1), "INVALID_REQUEST"),
    (
        "init_producer_id",
        InitTransactionalIdRequest(transactional_id="x" * 40_000, transaction_timeout_ms=1, producer_id=-1),
        "INVALID_REQUEST",
    ),
    (
        "init_producer_id",
        InitTransactionalIdRequest(transactional_id=ID, producer_id=-1),
        "INVALID_TRANSACTION_TIMEOUT",
    ),
    (
        "init_producer_id",
        InitTransactionalIdRequest(transactional_id=ID, transaction_timeout_ms=2**31 - 1, producer_id=-1),
        "INVALID_TRANSACTION_TIMEOUT",
    ),
    (
        "init_producer_id",
        InitTransactionalIdRequest(transactional_id=ID, transaction_timeout_ms=1_000, producer_id=4, producer_epoch=-1),
        "INVALID_REQUEST",
    ),
    (
        "add_partitions_to_txn",
        AddPartitionsToTxnRequest(transactional_id=ID, topics=[TopicPartitions(topic="gone", partitions=[0])]),
        "UNKNOWN_TOPIC_OR_PARTITION",
    ),
    (
        "add_partitions_to_txn",
        AddPartitionsToTxnRequest(
            transactional_id=ID, topics=[TopicPartitions(topic=TRANSACTION_STATE_TOPIC, partitions=[0])]
        ),
        "INVALID_TOPIC_EXCEPTION",
    ),
    ("add_partitions_to_txn", AddPartitionsToTxnRequest(transactional_id=ID), "INVALID_PRODUCER_ID_MAPPING"),
    ("end_txn", EndTxnRequest(transactional_id=ID, producer_epoch=40_000), "INVALID_REQUEST"),
    ("end_txn", EndTxnRequest(transactional_id=ID), "INVALID_PRODUCER_ID_MAPPING"),
    ("describe_transactions", DescribeTransactionsRequest(transactional_ids=[ID]), "TRANSACTIONAL_ID_NOT_FOUND"),
    ("describe_transactions", DescribeTransactionsRequest(transactional_ids=[""]), "INVALID_REQUEST"),
]


def test_bad_requests_get_their_error_code_and_the_coordinator_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as running:
            await init(running, "somebody else")
            for rpc, request, code in BAD_REQUESTS:
                response = await ask(running, rpc, request)
                given = response.error_code if getattr(response, "error_code", 0) else error_of(response)
                assert ErrorCode.of(given).name == code, (rpc, request, response)
            assert await init(running)

    asyncio.run(scenario())


def test_groups_and_transactional_ids_have_shards_of_their_own(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as running:
            await init(running)
            assert {topic for topic, _ in image_of(running).shards} == {TRANSACTION_STATE_TOPIC}
            await running.coordinator_of(ID)
            assert {topic for topic, _ in image_of(running).shards} == {TRANSACTION_STATE_TOPIC, GROUP_METADATA_TOPIC}

    asyncio.run(scenario())


def test_a_new_producer_leaves_out_the_producer_id_and_the_generation(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as running:
            request = InitTransactionalIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
            begun = await ask(running, "init_producer_id", request)
            again = await ask(running, "init_producer_id", request)
            assert (begun.error_code, again.error_code) == (0, 0)
            assert (again.producer_id, again.producer_epoch) == (begun.producer_id, begun.producer_epoch + 1)
            commit = TxnOffsetCommitRequest(
                transactional_id=ID,
                producer_id=again.producer_id,
                producer_epoch=again.producer_epoch,
                group_id="readers",
                offsets=[GroupOffset(topic="t", partition=0, offset=5)],
            )
            assert error_of(await running.ask("readers", "txn_offset_commit", commit)) == 0

    asyncio.run(scenario())
