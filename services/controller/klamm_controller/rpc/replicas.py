"""The calls about replicas: reports of brokers (Controller service), and reassignments and elections (Admin
service)."""

from __future__ import annotations

from functools import partial

from klamm.wire.calls import CallContext
from klamm.wire.v1.controller_pb2 import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ReportOfflineReplicasRequest,
    ReportOfflineReplicasResponse,
    ReportReplicaLogsRequest,
    ReportReplicaLogsResponse,
    ResignReplicasRequest,
    ResignReplicasResponse,
)
from klamm_controller.metadata.alter_partition import (
    alter_partition_parts,
    handle_alter_partition,
    handle_report_offline_replicas,
    joined_answers,
    offline_replicas_parts,
)
from klamm_controller.metadata.elections import LeaderElections
from klamm_controller.metadata.reassignment import (
    handle_alter_partition_reassignments,
    list_partition_reassignments,
    reassignment_parts,
)
from klamm_controller.metadata.replica_logs import ReplicaLogs
from klamm_controller.metadata.resignation import handle_resign_replicas, resign_replicas_parts
from klamm_controller.metadata.unclean_recovery import handle_replica_logs, replica_logs_parts
from klamm_controller.rpc.gateway import Gateway


class ReplicasRpcs:
    """Answers AlterPartition, ReportOfflineReplicas, ResignReplicas and ReportReplicaLogs."""

    def __init__(self, gateway: Gateway, logs: ReplicaLogs) -> None:
        self._gateway = gateway
        self._logs = logs

    async def alter_partition(self, request: AlterPartitionRequest, context: CallContext) -> AlterPartitionResponse:
        async def decided() -> AlterPartitionResponse:
            parts = (partial(handle_alter_partition, part) for part in alter_partition_parts(request))
            return joined_answers(await self._gateway.controller.submit_parts("AlterPartition", parts))

        return await self._gateway.answer(decided(), AlterPartitionResponse)

    async def report_offline_replicas(
        self, request: ReportOfflineReplicasRequest, context: CallContext
    ) -> ReportOfflineReplicasResponse:
        async def decided() -> ReportOfflineReplicasResponse:
            parts = (partial(handle_report_offline_replicas, part) for part in offline_replicas_parts(request))
            replies = await self._gateway.controller.submit_parts("ReportOfflineReplicas", parts)
            return next((reply for reply in replies if reply.error_code), replies[-1])

        return await self._gateway.answer(decided(), ReportOfflineReplicasResponse)

    async def resign_replicas(self, request: ResignReplicasRequest, context: CallContext) -> ResignReplicasResponse:
        async def decided() -> ResignReplicasResponse:
            parts = (partial(handle_resign_replicas, part) for part in resign_replicas_parts(request))
            replies = await self._gateway.controller.submit_parts("ResignReplicas", parts)
            return next((reply for reply in replies if reply.error_code), replies[-1])

        return await self._gateway.answer(decided(), ResignReplicasResponse)

    async def report_replica_logs(
        self, request: ReportReplicaLogsRequest, context: CallContext
    ) -> ReportReplicaLogsResponse:
        async def decided() -> ReportReplicaLogsResponse:
            parts = (partial(handle_replica_logs, part, logs=self._logs) for part in replica_logs_parts(request))
            replies = await self._gateway.controller.submit_parts("ReportReplicaLogs", parts)
            return next((reply for reply in replies if reply.error_code), replies[-1])

        return await self._gateway.answer(decided(), ReportReplicaLogsResponse)


class LeadersAndReplicasRpcs:
    """Answers ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments."""

    def __init__(self, gateway: Gateway, logs: ReplicaLogs) -> None:
        self._gateway = gateway
        self._logs = logs

    async def elect_leaders(self, request: ElectLeadersRequest, context: CallContext) -> ElectLeadersResponse:
        async def decided() -> ElectLeadersResponse:
            elections = LeaderElections(request, self._logs)
            replies = await self._gateway.controller.submit_parts("ElectLeaders", elections.parts())
            return ElectLeadersResponse(
                error_code=replies[0].error_code, results=[result for reply in replies for result in reply.results]
            )

        return await self._gateway.change(decided(), ElectLeadersResponse, timeout_ms=request.timeout_ms)

    async def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest, context: CallContext
    ) -> AlterPartitionReassignmentsResponse:
        async def decided() -> AlterPartitionReassignmentsResponse:
            parts = (partial(handle_alter_partition_reassignments, part) for part in reassignment_parts(request))
            replies = await self._gateway.controller.submit_parts("AlterPartitionReassignments", parts)
            return AlterPartitionReassignmentsResponse(
                results=[result for reply in replies for result in reply.results]
            )

        return await self._gateway.change(decided(), AlterPartitionReassignmentsResponse, timeout_ms=request.timeout_ms)

    async def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest, context: CallContext
    ) -> ListPartitionReassignmentsResponse:
        return await self._gateway.read(
            lambda image: list_partition_reassignments(request, image), ListPartitionReassignmentsResponse
        )
