"""Tests the copies of requests to other servers, and of their answers."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

import pytest
from google.protobuf.message import Message

from klamm.wire.v1 import coordinator_pb2 as pb
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.codec import messages
from klamm_broker.kafka.codec.forwarded import answered, forwarded
from klamm_broker.kafka.codec.schemas import request_schema
from klamm_broker.kafka.served_apis import SPOKEN
from tests.support.cold_requests import request_of

JOIN = {
    "group_id": "g",
    "session_timeout": 6_000,
    "rebalance_timeout": 9_000,
    "member_id": "m",
    "group_instance_id": None,
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b"a"}, {"name": "sticky", "metadata": b"b"}],
    "reason": "new topics",
}


def body_of(api_key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
    return messages.decode(request_of(api_key, version, fields))


def test_a_request_is_copied_with_durations_in_milliseconds_and_without_nulls() -> None:
    found = forwarded(pb.JoinGroupRequest, body_of(ApiKey.JOIN_GROUP, 9, JOIN), client_id="c")
    assert found == pb.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=6_000,
        rebalance_timeout_ms=9_000,
        member_id="m",
        protocol_type="consumer",
        protocols=[pb.GroupProtocol(name="range", metadata=b"a"), pb.GroupProtocol(name="sticky", metadata=b"b")],
        client_id="c",
        reason="new topics",
    )


def test_a_field_that_the_version_lacks_is_not_set_and_a_given_one_is_not_copied() -> None:
    found = forwarded(pb.JoinGroupRequest, body_of(ApiKey.JOIN_GROUP, 0, JOIN), protocol_type="mine")
    assert (found.rebalance_timeout_ms, found.reason, found.protocol_type) == (0, "", "mine")


def test_an_answer_is_copied_with_nulls_for_empty_texts_and_by_the_names_of_kafka() -> None:
    topic = pb.ConsumerPartitions(topic_id=uuid.UUID(int=3).bytes, topic="t", partitions=[0, 2])
    member = pb.DescribedConsumerMember(
        member_id="m", subscribed_topic_names=["t"], assignment=pb.ConsumerAssignment(topics=[topic])
    )
    found = answered(pb.DescribedConsumerGroup(group_id="g", state="Stable", group_epoch=4, members=[member]))
    assert (found["group_id"], found["group_state"], found["error_message"]) == ("g", "Stable", None)
    (copied,) = found["members"]
    assert (copied["member_id"], copied["instance_id"], copied["target_assignment"]) == ("m", None, None)
    assert copied["subscribed_topic_names"] == ["t"]
    assert copied["assignment"] == {
        "topic_partitions": [{"topic_id": uuid.UUID(int=3), "topic_name": "t", "partitions": [0, 2]}]
    }


def test_a_text_of_kafka_that_cannot_be_null_is_empty() -> None:
    request = request_of(ApiKey.JOIN_GROUP, 6, JOIN)
    with_null = messages.encode(request, answered(pb.JoinGroupResponse(error_code=25)))
    with_text = messages.encode(request, {**answered(pb.JoinGroupResponse(error_code=25)), "protocol_name": ""})
    assert with_null == with_text


@pytest.mark.parametrize(
    ("api_key", "message", "elsewhere"),
    [
        (ApiKey.JOIN_GROUP, pb.JoinGroupRequest, set()),
        (ApiKey.SYNC_GROUP, pb.SyncGroupRequest, set()),
        (ApiKey.HEARTBEAT, pb.HeartbeatRequest, set()),
        (ApiKey.LEAVE_GROUP, pb.LeaveGroupRequest, set()),
        (ApiKey.OFFSET_COMMIT, pb.OffsetCommitRequest, {"generation_id_or_member_epoch", "topics"}),
        (ApiKey.TXN_OFFSET_COMMIT, pb.TxnOffsetCommitRequest, {"topics"}),
        (ApiKey.END_TXN, pb.EndTxnRequest, set()),
        (
            ApiKey.INIT_PRODUCER_ID,
            pb.InitTransactionalIdRequest,
            set(),
        ),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, pb.ConsumerGroupHeartbeatRequest, {"topic_partitions"}),
    ],
)
def test_no_field_of_the_newest_request_is_lost(api_key: ApiKey, message: type[Message], elsewhere: set[str]) -> None:
    """`elsewhere` are the fields that the handler passes by itself."""
    fields = {field.name for field in dataclasses.fields(request_schema(api_key, SPOKEN[api_key].max))}
    assert fields - answered(message()).keys() == elsewhere
