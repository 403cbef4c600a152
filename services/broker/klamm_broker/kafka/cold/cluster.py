"""Answers requests about the cluster and its servers: DescribeCluster (KIP-700), DescribeQuorum (KIP-595, KIP-836),
UnregisterBroker, UpdateFeatures (KIP-584)."""

from __future__ import annotations

from typing import Any

from klamm.acls import AclOperation
from klamm.errors import BrokerError, ErrorCode
from klamm.model import CLUSTER_METADATA_TOPIC
from klamm.wire.v1 import controller_pb2 as pb
from klamm.wire.v1.controller_rpc import AdminStub
from klamm_broker.kafka.api import ApiKey, Versions, api
from klamm_broker.kafka.codec.fields import Fields
from klamm_broker.kafka.cold import authorized_operations, features
from klamm_broker.kafka.cold.forwarding import TIMEOUT_MS, ActiveController
from klamm_broker.kafka.cold.voters import CONTROLLER_LISTENER, directory_id
from klamm_broker.kafka.listener_metadata import ListenerBroker, ListenerMetadata
from klamm_broker.kafka.requests import Request
from klamm_server.runtime.clock import Clock
from klamm_server.security.needs import CLUSTER_SHOWN
from klamm_server.security.operations import Check

_BROKERS, _CONTROLLERS = 1, 2
"""The types of endpoints in DescribeCluster (KIP-919)."""


def _not_updated(_body: Any) -> Fields:
    return {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "error_message": None, "results": []}


class ClusterApis:
    """Answers requests about the cluster. Each method takes a decoded request and returns the answer's fields."""

    def __init__(self, controller: ActiveController, view: ListenerMetadata, clock: Clock) -> None:
        self._controller = controller
        self._view = view
        self._clock = clock

    @api(ApiKey.DESCRIBE_CLUSTER, Versions(0, 2, flexible=0), Check(of_resources=(CLUSTER_SHOWN,)))
    async def describe(self, request: Request, body: Any) -> Fields:
        """Describes the brokers. Clients cannot ask for controllers, because controllers have no Kafka listener."""
        endpoint_type = getattr(body, "endpoint_type", _BROKERS)
        image = self._view.image
        if endpoint_type != _BROKERS:
            is_known = endpoint_type == _CONTROLLERS
            return {
                "error_code": ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                "error_message": f"asked a broker (endpoint type {_BROKERS}) for endpoint type {endpoint_type}",
                "cluster_id": image.cluster_id,
                "brokers": [],
            }
        with_fenced = getattr(body, "include_fenced_brokers", False)
        brokers = self._view.registered() if with_fenced else self._view.brokers()
        return {
            "error_code": ErrorCode.NONE,
            "cluster_id": image.cluster_id,
            "controller_id": self._view.controller_id,
            "brokers": [_broker(broker) for broker in brokers],
            "cluster_authorized_operations": authorized_operations.of_cluster(
                body.include_cluster_authorized_operations and CLUSTER_SHOWN.shows()
            ),
        }

    @api(ApiKey.DESCRIBE_QUORUM, Versions(0, 2, flexible=0), forwarded_to="Admin/DescribeQuorum", is_whole=True)
    async def describe_quorum(self, request: Request, body: Any) -> Fields:
        """Describes the quorum of the controllers' log, which is the only quorum."""
        asked = {
            (topic.topic_name, asked_partition.partition_index)
            for topic in body.topics
            for asked_partition in topic.partitions
        }
        if asked != {(CLUSTER_METADATA_TOPIC, 0)}:
            return _no_quorums(body)
        try:
            quorum = await self._controller.ask(
                AdminStub.describe_quorum, pb.DescribeQuorumRequest(), timeout_ms=TIMEOUT_MS
            )
        except BrokerError as error:
            return _no_quorum(error.code, error.message)
        controllers = [replica for replica in quorum.replicas if replica.kind == pb.QUORUM_REPLICA_KIND_CONTROLLER]
        # Leave coordinators out: one may have a broker's id, and Kafka clients do not know coordinators.
        observers = [
            replica
            for replica in quorum.replicas
            if not replica.is_voter and replica.kind != pb.QUORUM_REPLICA_KIND_COORDINATOR
        ]
        end_index = max((controller.end_index for controller in controllers), default=0)
        partition = {
            "partition_index": 0,
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "leader_id": quorum.leader_id,
            "leader_epoch": quorum.term,
            "high_watermark": quorum.high_watermark,
            "current_voters": [
                self._replica(controller, end_index) for controller in controllers if controller.is_voter
            ],
            "observers": [self._replica(observer, end_index) for observer in observers],
        }
        return {
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "topics": [{"topic_name": CLUSTER_METADATA_TOPIC, "partitions": [partition]}],
            "nodes": [_quorum_node(controller) for controller in controllers if controller.is_voter],
        }

    def _replica(self, replica: pb.QuorumReplica, end_index: int) -> Fields:
        """Returns the state of a replica of the log. Brokers count records, not entries, so their end offset is the
        leader's end minus their lag."""
        heard_ms = self._clock.wall_ms() - replica.silent_ms
        return {
            "replica_id": replica.node_id,
            "replica_directory_id": directory_id(replica.directory_id),
            "log_end_offset": max(0, end_index - replica.lag),
            "last_fetch_timestamp": heard_ms,
            "last_caught_up_timestamp": -1 if replica.lag else heard_ms,
        }

    @api(ApiKey.UNREGISTER_BROKER, Versions(0, 0, flexible=0), forwarded_to="Admin/UnregisterBroker")
    async def unregister_broker(self, request: Request, body: Any) -> Fields:
        ask = pb.UnregisterBrokerRequest(broker_id=body.broker_id)
        try:
            await self._controller.change(AdminStub.unregister_broker, ask, timeout_ms=TIMEOUT_MS)
        except BrokerError as error:
            return {"error_code": error.code, "error_message": error.message}
        return {"error_code": ErrorCode.NONE, "error_message": None}

    @api(
        ApiKey.UPDATE_FEATURES,
        Versions(0, 2, flexible=0),
        Check(of_cluster=(AclOperation.ALTER,)),
        refused=_not_updated,
        is_whole=True,
    )
    async def update_features(self, request: Request, body: Any) -> Fields:
        """Accepts a request if all its levels are the current ones. Otherwise refuses the whole request."""
        for feature_update in body.feature_updates:
            upgrade_type = getattr(feature_update, "upgrade_type", None)
            if upgrade_type is None:
                upgrade_type = features.SAFE_DOWNGRADE if feature_update.allow_downgrade else features.UPGRADE
            if why := features.why_refused(feature_update.feature, feature_update.max_version_level, upgrade_type):
                return {"error_code": ErrorCode.INVALID_UPDATE_VERSION, "error_message": why, "results": []}
        results = [
            {"feature": feature_update.feature, "error_code": ErrorCode.NONE, "error_message": None}
            for feature_update in body.feature_updates
        ]
        return {"error_code": ErrorCode.NONE, "error_message": None, "results": results}


def _broker(broker: ListenerBroker) -> Fields:
    return {
        "broker_id": broker.broker_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack or None,
        "is_fenced": broker.fenced,
    }


def _quorum_node(controller: pb.QuorumReplica) -> Fields:
    endpoint = controller.endpoint
    return {
        "node_id": controller.node_id,
        "listeners": [{"name": CONTROLLER_LISTENER, "host": endpoint.host, "port": endpoint.port}],
    }


def _no_quorum(code: ErrorCode, message: str) -> Fields:
    return {"error_code": code, "error_message": message, "topics": [], "nodes": []}


def _no_quorums(body: Any) -> Fields:
    """Returns an error for each partition, as Kafka does if a request names another partition than that of the
    controllers' log."""
    topics = [
        {
            "topic_name": topic.topic_name,
            "partitions": [_no_partition(partition.partition_index) for partition in topic.partitions],
        }
        for topic in body.topics
    ]
    return {"error_code": ErrorCode.NONE, "error_message": None, "topics": topics, "nodes": []}


def _no_partition(number: int) -> Fields:
    return {
        "partition_index": number,
        "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "error_message": f"only {CLUSTER_METADATA_TOPIC}-0 has a quorum",
        "leader_id": 0,
        "leader_epoch": 0,
        "high_watermark": 0,
        "current_voters": [],
        "observers": [],
    }
