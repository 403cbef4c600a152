"""Tests that any request gets an answer or a refusal, causes no internal error, and harms no other client.

The requests are well-formed messages with random contents, made from the contracts alone, for every RPC of a cluster.
"""

from __future__ import annotations

import asyncio
import pathlib
import random
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc import StatusCode, aio

from klamm import Admin, Consumer, NewTopic, Producer
from klamm.errors import ErrorCode
from klamm.records import encode_batch
from klamm.wire.v1.broker_rpc import BROKER
from klamm.wire.v1.controller_rpc import ADMIN, CONTROLLER
from klamm.wire.v1.coordinator_rpc import COORDINATOR
from tests.support import seeds
from tests.support.klamm_process import running_cluster
from tests.support.waiting import patience

SEED = seeds.run_seed()
RERUN = f"TEST_SEED={SEED} python -m pytest {__file__}"
REQUEST_COUNT = 3_000
CONCURRENCY = 16
OUR_FAULT = {StatusCode.INTERNAL, StatusCode.UNKNOWN, StatusCode.UNIMPLEMENTED}

METHODS = [method for service in (BROKER, ADMIN, CONTROLLER, COORDINATOR) for method in service.stub.descriptor.methods]
TEXTS = ["t", "t", "t", "u", "g", "g", "nope", "", "1", "100", "a b", "é", "a" * 249, "__consumer_offsets"]
TEXTS += ["range", "consumer", "retention.ms", "cleanup.policy", "compact"]
BATCH = encode_batch([(1_000, b"key", b"value", ())])
INT32 = [0, 0, 1, 1, 2, 5, 100, -1, -2, 2**31 - 1, -(2**31)]
INT64 = [*INT32, 10**12, 2**63 - 1, -(2**63)]
UINT32 = [0, 1, len(BATCH), 2**32 - 1]
VALUES: dict[int, list[Any]] = {
    FieldDescriptor.TYPE_STRING: TEXTS,
    FieldDescriptor.TYPE_BYTES: [b"", b"\0", bytes(16), BATCH, BATCH, BATCH[:-1], b"x" * 100],
    FieldDescriptor.TYPE_BOOL: [False, True],
    FieldDescriptor.TYPE_INT32: INT32,
    FieldDescriptor.TYPE_SINT32: INT32,
    FieldDescriptor.TYPE_INT64: INT64,
    FieldDescriptor.TYPE_SINT64: INT64,
    FieldDescriptor.TYPE_UINT32: UINT32,
    FieldDescriptor.TYPE_UINT64: [*UINT32, 2**64 - 1],
    FieldDescriptor.TYPE_DOUBLE: [0.0, -1.0, 1.5, 1e300, float("inf"), float("nan")],
}


def value_of(rng: random.Random, field: FieldDescriptor) -> Any:
    if field.type == FieldDescriptor.TYPE_ENUM:
        return rng.choice([value.number for value in field.enum_type.values])
    if field.name.endswith(("timeout_ms", "wait_ms")):
        return rng.choice([0, 1, 50, -1])  # longer values would only make the test longer
    if field.name in ("broker_id", "coordinator_id"):
        return rng.choice([-1, 0, 2, 3])  # not 1, because a request with its id and epoch may shut it down
    return rng.choice(VALUES[field.type])


def fill(rng: random.Random, message: Message) -> None:
    """Gives most fields a value, and repeated fields up to three."""
    for field in message.DESCRIPTOR.fields:
        if rng.random() < 0.1:
            continue
        content = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            of_value = field.message_type.fields_by_name["value"]
            if of_value.message_type is None:
                content[rng.choice(TEXTS)] = value_of(rng, of_value)
        elif field.is_repeated:
            for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
                if field.message_type is not None:
                    fill(rng, content.add())
                else:
                    content.append(value_of(rng, field))
        elif field.message_type is not None:
            fill(rng, content)
        else:
            setattr(message, field.name, value_of(rng, field))


def codes_in(message: Message) -> Iterator[int]:
    """Yields every `error_code` at any depth."""
    for field, content in message.ListFields():
        if field.name == "error_code":
            yield content
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for part in content if field.is_repeated else [content]:
                yield from codes_in(part)


async def ask(channel: aio.Channel, method: MethodDescriptor, request: Message) -> list[Message]:
    """Returns the answer, or the first few answers of a stream."""
    arity = "_".join("stream" if each else "unary" for each in (method.client_streaming, method.server_streaming))
    call = getattr(channel, arity)(
        f"/{method.containing_service.full_name}/{method.name}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )(iter([request]) if method.client_streaming else request, timeout=2)
    if not method.server_streaming:
        return [await call]
    answers = []
    async for answer in call:
        answers.append(answer)
        if len(answers) == 3:
            call.cancel()
            break
    return answers


async def outcome_of(
    channel: aio.Channel, method: MethodDescriptor, request: Message
) -> tuple[StatusCode, list[Message]]:
    try:
        return StatusCode.OK, await ask(channel, method, request)
    except aio.AioRpcError as error:
        return error.code(), []


async def ask_anything(bootstrap: str, rng: random.Random) -> None:
    async with aio.insecure_channel(bootstrap) as channel:

        async def some() -> None:
            for _ in range(REQUEST_COUNT // CONCURRENCY):
                method = rng.choice(METHODS)
                request = GetMessageClass(method.input_type)()
                fill(rng, request)
                status, answers = await outcome_of(channel, method, request)
                assert status not in OUR_FAULT, f"{method.name} {status} {answers} {request}; {RERUN}"
                codes = {code for answer in answers for code in codes_in(answer)}
                assert ErrorCode.UNKNOWN_SERVER_ERROR not in codes, f"{method.name} {answers} {request}; {RERUN}"

        async with asyncio.TaskGroup() as asking:
            for _ in range(CONCURRENCY):
                asking.create_task(some())


@pytest.mark.slow
def test_a_cluster_still_works_after_random_requests(tmp_path: pathlib.Path) -> None:
    print(RERUN)
    with running_cluster(tmp_path) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 2), NewTopic("u", 1)])
        asyncio.run(ask_anything(cluster.bootstrap, random.Random(SEED)))
        assert cluster.running, RERUN
        assert_all_is_well(cluster.bootstrap)
        assert cluster.stop() == 0, RERUN
        cluster.start()
        assert_all_is_well(cluster.bootstrap)


def assert_all_is_well(bootstrap: str) -> None:
    """Checks that a topic, a record and a group work as usual, also right after a restart."""
    with (
        Producer(bootstrap_servers=bootstrap) as producer,
        Consumer(bootstrap_servers=bootstrap, group_id="after", auto_offset_reset="earliest") as consumer,
    ):
        written = producer.send("afterwards", b"still here").result(timeout=patience())
        consumer.subscribe(["afterwards"])
        records = [record for each in consumer.poll(timeout_ms=int(patience() * 1_000)).values() for record in each]
    assert [(record.offset, record.value) for record in records] == [(written.offset, b"still here")], RERUN
