"""Converts calls of the topic model to requests of the Admin service, and its responses to answers of the model."""

from __future__ import annotations

from typing import Any

from klamm.errors import ErrorCode
from klamm.wire.v1 import controller_pb2 as pb
from klamm.wire.v1.metadata_pb2 import CONFIG_RESOURCE_TYPE_TOPIC
from tests.chaos.klammchaos.topic_model import (
    CONFIG,
    Answer,
    Call,
    Create,
    Delete,
    Grow,
    ReadConfig,
    ReadTopic,
    SetConfig,
)


def topic_resource(name: str) -> pb.ConfigResource:
    """Returns the config resource of a topic."""
    return pb.ConfigResource(type=CONFIG_RESOURCE_TYPE_TOPIC, name=name)


def request_of(name: str, call: Call, timeout_ms: int) -> tuple[str, Any]:
    """Returns the method of the Admin service for a call, and its request."""
    match call:
        case Create(partition_count):
            topic = pb.NewTopic(name=name, partition_count=partition_count, replication_factor=1)
            return "create_topics", pb.CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)
        case Delete():
            return "delete_topics", pb.DeleteTopicsRequest(topics=[name], timeout_ms=timeout_ms)
        case Grow(total_count):
            topics = [pb.NewPartitions(topic=name, total_count=total_count)]
            return "create_partitions", pb.CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms)
        case SetConfig(value):
            operation = pb.CONFIG_OPERATION_DELETE if value is None else pb.CONFIG_OPERATION_SET
            change = pb.ConfigChange(name=CONFIG, operation=operation, value=value or "")
            resources = [pb.AlterConfigsResource(resource=topic_resource(name), changes=[change])]
            return "incremental_alter_configs", pb.IncrementalAlterConfigsRequest(resources=resources)
        case ReadTopic():
            return "describe_topics", pb.DescribeTopicsRequest(topics=[name])
        case ReadConfig():
            described = pb.DescribeConfigsResource(resource=topic_resource(name), names=[CONFIG])
            return "describe_configs", pb.DescribeConfigsRequest(resources=[described])


def answer_of(call: Call, response: Any) -> Answer:
    """Returns the answer about the only topic in a response."""
    (result,) = response.topics if isinstance(call, Create | ReadTopic) else response.results
    code = ErrorCode.of(result.error_code)
    if code is not ErrorCode.NONE:
        return Answer(code=code)
    match call:
        case Create():
            return Answer(topic_id=result.topic_id.hex())
        case ReadTopic():
            return Answer(topic_id=result.topic_id.hex(), partition_count=len(result.partitions))
        case ReadConfig():
            (config,) = result.configs
            is_set = config.source == pb.CONFIG_SOURCE_DYNAMIC_TOPIC
            return Answer(config=config.value if is_set else None)
        case _:
            return Answer()
