"""Forwards changes of replicas and leaders to the active controller: ElectLeaders, AlterPartitionReassignments,
ListPartitionReassignments."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from klamm.errors import BrokerError, ErrorCode
from klamm.wire.v1 import controller_pb2 as pb
from klamm.wire.v1.controller_rpc import AdminStub
from klamm.wire.v1.metadata_pb2 import BrokerIds
from klamm_broker.kafka.api import ApiKey, Versions, api
from klamm_broker.kafka.codec.fields import Fields, milliseconds
from klamm_broker.kafka.cold.forwarding import TIMEOUT_MS, ActiveController
from klamm_broker.kafka.cold.groups import by_topic
from klamm_broker.kafka.requests import Request


class ReplicaApis:
    """Answers requests about replicas. Each method takes a decoded request and returns the answer's fields."""

    def __init__(self, controller: ActiveController) -> None:
        self._controller = controller

    @api(ApiKey.ELECT_LEADERS, Versions(0, 2, flexible=2), forwarded_to="Admin/ElectLeaders")
    async def elect_leaders(self, request: Request, body: Any) -> Fields:
        """Elects leaders of the named partitions. Without partitions, elects leaders of all partitions that need an
        election."""
        timeout_ms = milliseconds(body.timeout)
        # The numbers are equal in Kafka and Klamm. Before version 1, only the preferred leader could be elected.
        election_type: Any = getattr(body, "election_type", pb.ELECTION_TYPE_PREFERRED)
        named = [
            pb.NamedPartition(topic=topic.topic, partition=number)
            for topic in body.topic_partitions or ()
            for number in topic.partitions
        ]
        if body.topic_partitions is not None and not named:
            return {"error_code": ErrorCode.NONE, "replica_election_results": []}
        ask = pb.ElectLeadersRequest(election_type=election_type, partitions=named, timeout_ms=timeout_ms)
        code = ErrorCode.NONE
        try:
            results: Iterable[Any] = (
                await self._controller.change(AdminStub.elect_leaders, ask, timeout_ms=timeout_ms)
            ).results
        except BrokerError as error:
            code = error.code
            results = _all_failed(named, error)
        return {
            "error_code": code,
            "replica_election_results": [
                {
                    "topic": topic,
                    "partition_result": [{**_outcome(result), "partition_id": result.partition} for result in group],
                }
                for topic, group in groupby(results, key=lambda result: result.topic)
            ],
        }

    @api(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        Versions(0, 1, flexible=0),
        forwarded_to="Admin/AlterPartitionReassignments",
    )
    async def alter_reassignments(self, request: Request, body: Any) -> Fields:
        timeout_ms = milliseconds(body.timeout)
        may_change_factor = getattr(body, "allow_replication_factor_change", True)
        ask = pb.AlterPartitionReassignmentsRequest(
            partitions=[
                pb.PartitionReassignment(
                    topic=topic.name,
                    partition=partition.partition_index,
                    replicas=None if partition.replicas is None else BrokerIds(broker_ids=partition.replicas),
                )
                for topic in body.topics
                for partition in topic.partitions
            ],
            keep_replication_factor=not may_change_factor,
            timeout_ms=timeout_ms,
        )
        answer: dict[str, Any] = {
            "allow_replication_factor_change": may_change_factor,
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "responses": [],
        }
        try:
            results = (
                await self._controller.change(AdminStub.alter_partition_reassignments, ask, timeout_ms=timeout_ms)
            ).results
        except BrokerError as error:
            return {**answer, "error_code": error.code, "error_message": error.message}
        return {**answer, "responses": by_topic(results, _outcome)}

    @api(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, Versions(0, 0, flexible=0), forwarded_to="Admin/ListPartitionReassignments"
    )
    async def list_reassignments(self, request: Request, body: Any) -> Fields:
        """Lists the reassignments of the named topics. Without topics, lists all. Kafka ignores the request's
        timeout."""
        named = [
            pb.NamedPartition(topic=topic.name, partition=number)
            for topic in body.topics or ()
            for number in topic.partition_indexes
        ]
        if body.topics is not None and not named:
            return {"error_code": ErrorCode.NONE, "error_message": None, "topics": []}
        try:
            answer = await self._controller.ask(
                AdminStub.list_partition_reassignments,
                pb.ListPartitionReassignmentsRequest(partitions=named),
                timeout_ms=TIMEOUT_MS,
            )
        except BrokerError as error:
            return {"error_code": error.code, "error_message": error.message, "topics": []}
        return {
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "topics": by_topic(answer.reassignments, _ongoing),
        }


def _outcome(result: pb.NamedPartitionResult) -> Fields:
    return {
        "partition_index": result.partition,
        "error_code": result.error_code,
        "error_message": result.error_message or None,
    }


def _ongoing(reassignment: pb.OngoingReassignment) -> Fields:
    return {
        "partition_index": reassignment.partition,
        "replicas": list(reassignment.replicas),
        "adding_replicas": list(reassignment.adding_replicas),
        "removing_replicas": list(reassignment.removing_replicas),
    }


def _all_failed(partitions: Iterable[pb.NamedPartition], error: BrokerError) -> list[pb.NamedPartitionResult]:
    return [
        pb.NamedPartitionResult(
            topic=partition.topic, partition=partition.partition, error_code=error.code, error_message=error.message
        )
        for partition in partitions
    ]
