"""Tests that a client that takes all places it may get on a broker leaves some to clients at other addresses.

The users of this cluster do not log in, so they differ by their addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import pathlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from grpc import aio

from klamm import Admin, NewTopic
from klamm.wire.v1.broker_pb2 import MetadataRequest
from klamm.wire.v1.broker_rpc import BROKER
from klamm_broker.kafka.api import ApiKey
from tests.support.broker_harness import LONG_MS, batch, fetch_request, produce_request
from tests.support.deployed_services import HOST, Deployment
from tests.support.kafka_wire import KafkaWire
from tests.support.raw_stub import RawStub
from tests.support.source_relay import relayed
from tests.support.waiting import until

OTHER_HOST = "127.0.0.2"
PARKED_MAX = 40
CALLS_MAX = 200
FETCH_VERSION = 11


@pytest.fixture
def deployment(tmp_path: pathlib.Path) -> Iterator[Deployment]:
    settings = {"max.parked.requests": str(PARKED_MAX), "max.concurrent.rpcs": str(CALLS_MAX)}
    deployed = Deployment(tmp_path, broker=settings)
    try:
        for service in (deployed.broker, deployed.controller):
            service.start()
        with Admin(bootstrap_servers=deployed.bootstrap) as admin:
            admin.create_topics([NewTopic("orders", partition_count=1)])
        yield deployed
    finally:
        for service in deployed.services.values():
            service.abandon()


def long_poll() -> dict[str, object]:
    """Returns the fields of a Fetch that waits until there is a record."""
    partition = {
        "partition": 0,
        "fetch_offset": 1,
        "current_leader_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    return {
        "max_wait": LONG_MS,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_id": 0,
        "session_epoch": -1,
        "forgotten_topics_data": [],
        "rack_id": "",
        "topics": [{"topic": "orders", "partitions": [partition]}],
    }


async def cancelled(calls: Sequence[Any], ends: Sequence[asyncio.Future[Any]]) -> None:
    """Cancels the calls and waits until nobody reads from them."""
    for call in calls:
        call.cancel()
    await asyncio.gather(*ends, return_exceptions=True)


async def produced(broker: RawStub) -> bool:
    """Produces a record, and returns True if the broker has appended it."""
    response = await broker.produce(produce_request([("orders", 0, batch(1))]))
    return not response.partitions[0].error_code


def test_a_client_that_parks_all_the_fetches_it_may_lets_a_fetch_of_another_address_wait(
    deployment: Deployment,
) -> None:
    async def scenario() -> None:
        async with aio.insecure_channel(deployment.bootstrap) as channel:
            broker = RawStub(channel, BROKER)
            await until(lambda: produced(broker))
            streams = [broker.fetch_stream(fetch_request([("orders", 0, 1)])) for _ in range(2 * PARKED_MAX)]
            ends = [asyncio.ensure_future(stream.read()) for stream in streams]
            for ended in itertools.islice(asyncio.as_completed(ends), PARKED_MAX):
                with pytest.raises(aio.AioRpcError, match="RESOURCE_EXHAUSTED"):
                    await ended

            with KafkaWire(deployment.kafka_bootstrap, source=OTHER_HOST) as modest:
                modest.send(ApiKey.FETCH, FETCH_VERSION, long_poll())
                # The broker answers this request only after it has parked the fetch, or answered it.
                with KafkaWire(deployment.kafka_bootstrap, source=HOST) as other:
                    other.ask(ApiKey.API_VERSIONS, 0, {})
                assert await produced(broker)
                answer = await asyncio.to_thread(modest.receive, ApiKey.FETCH, FETCH_VERSION)
                assert answer.responses[0].partitions[0].high_watermark == 2
            await cancelled(streams, ends)

    asyncio.run(scenario())


def test_a_client_with_all_the_calls_that_it_may_have_lets_another_address_call(deployment: Deployment) -> None:
    async def scenario() -> None:
        async with contextlib.AsyncExitStack() as stack:
            brokers = [await stack.enter_async_context(connected(deployment.bootstrap)) for _ in range(2)]
            await until(lambda: produced(brokers[0]))
            # These calls stay open without a parked request, because the client sends none.
            calls = [broker.produce_stream() for broker in brokers for _ in range(CALLS_MAX)]
            ends = [asyncio.ensure_future(call.read()) for call in calls]
            for ended in itertools.islice(asyncio.as_completed(ends), CALLS_MAX):
                with pytest.raises(aio.AioRpcError):
                    await ended

            port = await stack.enter_async_context(relayed(deployment.bootstrap, source=OTHER_HOST))
            modest = await stack.enter_async_context(connected(f"{HOST}:{port}"))
            answer = await modest.metadata(MetadataRequest(topics=["orders"]))
            assert answer.topics[0].name == "orders"
            await cancelled(calls, ends)

    asyncio.run(scenario())


@contextlib.asynccontextmanager
async def connected(address: str) -> AsyncIterator[RawStub]:
    """Yields a stub with a connection of its own."""
    async with aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield RawStub(channel, BROKER)
