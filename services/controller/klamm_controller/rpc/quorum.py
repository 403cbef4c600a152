"""The calls of the Admin service about the quorum of controllers (KIP-595, KIP-853)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from klamm.errors import BrokerError, ErrorCode
from klamm.wire.calls import CallContext
from klamm.wire.v1.controller_pb2 import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    BrokerHeartbeatRequest,
    CoordinatorHeartbeatRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumReplica,
    QuorumReplicaKind,
    RegisterBrokerRequest,
    RegisterCoordinatorRequest,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from klamm_controller.active.liveness import Liveness
from klamm_controller.log.quorum_status import QuorumStatus, ReplicaStatus
from klamm_controller.rpc.gateway import Gateway, endpoint_of
from klamm_server.metadata.entities import BrokerImage, CoordinatorImage
from klamm_server.net.listeners import PORT_MAX

ResponseT = TypeVar("ResponseT", AddRaftVoterResponse, RemoveRaftVoterResponse)

REFUSALS = (
    ErrorCode.DUPLICATE_VOTER,
    ErrorCode.VOTER_NOT_FOUND,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INCONSISTENT_CLUSTER_ID,
)


class QuorumRpcs:
    """Answers DescribeQuorum, AddRaftVoter and RemoveRaftVoter."""

    def __init__(
        self,
        gateway: Gateway,
        brokers: Liveness[RegisterBrokerRequest, BrokerHeartbeatRequest],
        coordinators: Liveness[RegisterCoordinatorRequest, CoordinatorHeartbeatRequest],
    ) -> None:
        self._gateway = gateway
        self._brokers = brokers
        self._coordinators = coordinators

    async def describe_quorum(self, request: DescribeQuorumRequest, context: CallContext) -> DescribeQuorumResponse:
        return await self._gateway.answer(self._describe(), DescribeQuorumResponse)

    async def add_raft_voter(self, request: AddRaftVoterRequest, context: CallContext) -> AddRaftVoterResponse:
        async def add() -> None:
            self._check(request)
            endpoint = request.endpoint
            if endpoint.host and not 0 < endpoint.port <= PORT_MAX:
                raise _invalid(f"endpoint.port={endpoint.port}, expected 1 to {PORT_MAX}")
            address = f"{endpoint.host}:{endpoint.port}" if endpoint.host else ""
            await self._gateway.quorum.add_voter(request.node_id, request.directory_id, address)

        return await self._change(context, add, request.timeout_ms, request.node_id, AddRaftVoterResponse)

    async def remove_raft_voter(self, request: RemoveRaftVoterRequest, context: CallContext) -> RemoveRaftVoterResponse:
        async def remove() -> None:
            self._check(request)
            await self._gateway.quorum.remove_voter(request.node_id, request.directory_id)

        return await self._change(context, remove, request.timeout_ms, request.node_id, RemoveRaftVoterResponse)

    def _check(self, request: AddRaftVoterRequest | RemoveRaftVoterRequest) -> None:
        cluster_id = self._gateway.controller.committed.cluster_id
        if request.cluster_id not in ("", cluster_id):
            raise ErrorCode.INCONSISTENT_CLUSTER_ID.exception(
                f"the server belongs to cluster {cluster_id}, but the request is for {request.cluster_id}"
            )
        if request.node_id < 0:
            raise _invalid(f"node_id={request.node_id}, expected at least 0")

    async def _change(
        self,
        context: CallContext,
        change: Callable[[], Awaitable[None]],
        timeout_ms: int,
        node_id: int,
        response: Callable[..., ResponseT],
    ) -> ResponseT:
        async def decided() -> ResponseT:
            try:
                await change()
            except BrokerError as error:
                if error.code not in REFUSALS:
                    raise
                return response(error_code=error.code, error_message=f"controller {node_id}: {error.message}")
            return response()

        return await self._gateway.answer(decided(), response, timeout_ms=timeout_ms)

    async def _describe(self) -> DescribeQuorumResponse:
        image = await self._gateway.controller.confirm()
        status = self._gateway.quorum.status()
        replicas = [_controller(status, replica) for replica in status.replicas]
        replicas += self._followers(self._brokers, image.brokers, QuorumReplicaKind.QUORUM_REPLICA_KIND_BROKER)
        replicas += self._followers(
            self._coordinators, image.coordinators, QuorumReplicaKind.QUORUM_REPLICA_KIND_COORDINATOR
        )
        return DescribeQuorumResponse(
            leader_id=status.leader_id, term=status.term, high_watermark=status.high_watermark, replicas=replicas
        )

    def _followers(
        self,
        liveness: Liveness[Any, Any],
        nodes: Mapping[int, BrokerImage] | Mapping[int, CoordinatorImage],
        kind: QuorumReplicaKind,
    ) -> list[QuorumReplica]:
        """Returns the live brokers or coordinators as replicas of the metadata log, as of their last heartbeats."""
        end_index = self._gateway.controller.committed.end_index
        return [
            _follower(
                nodes[node.node_id],
                node.node_id,
                kind,
                node.metadata_end_index,
                end_index,
                node.silent_ms,
            )
            for node in liveness.last_heartbeats()
            if node.node_id in nodes
        ]


def _controller(status: QuorumStatus, replica: ReplicaStatus) -> QuorumReplica:
    return QuorumReplica(
        node_id=replica.node_id,
        directory_id=replica.directory_id,
        endpoint=endpoint_of(replica.address),
        is_voter=replica.is_voter,
        end_index=replica.end_index,
        lag=max(0, status.end_index - replica.end_index),
        silent_ms=replica.silent_ms,
    )


def _follower(
    node: BrokerImage | CoordinatorImage,
    node_id: int,
    kind: QuorumReplicaKind,
    metadata_end_index: int,
    end_index: int,
    silent_ms: int,
) -> QuorumReplica:
    return QuorumReplica(
        node_id=node_id,
        kind=kind,
        endpoint=endpoint_of(f"{node.host}:{node.port}"),
        end_index=metadata_end_index,
        lag=max(0, end_index - metadata_end_index),
        silent_ms=silent_ms,
    )


def _invalid(message: str) -> Exception:
    return ErrorCode.INVALID_REQUEST.exception(message)
