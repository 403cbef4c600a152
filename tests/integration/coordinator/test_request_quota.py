"""Tests that coordinators and controllers limit the time of clients' gRPC calls (`request_percentage`, KIP-124)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from grpc import aio

from klamm.acls import AclDecision, AclOperation, BuiltInRule, ResourceType
from klamm.quotas import REQUEST_PERCENTAGE
from klamm.wire.v1 import controller_pb2 as c
from klamm.wire.v1 import coordinator_pb2 as pb
from klamm.wire.v1 import metadata_pb2 as m
from klamm.wire.v1.controller_rpc import ADMIN
from klamm_controller.config import ControllerConfig
from klamm_controller.server import ControllerServer
from klamm_server.config.server_config import load
from klamm_server.metadata.acl_index import AclIndex
from klamm_server.metrics.prometheus import registry
from klamm_server.security.acls.authorizer import StandardAuthorizer
from tests.support.coordinator_cluster import HOST, cluster, eventually, run
from tests.support.raw_stub import RawStub
from tests.support.waiting import patience

QUOTA = c.AlterClientQuotasRequest(
    alterations=[
        c.ClientQuotaAlteration(
            entity=[m.QuotaEntityPart(type="user")],
            operations=[c.ClientQuotaOperation(key=REQUEST_PERCENTAGE, value=1e-6)],
        )
    ]
)


class ClientsOnly(StandardAuthorizer):
    """An authorizer that allows everything except CLUSTER_ACTION, so that no caller is a server."""

    def __init__(self) -> None:
        super().__init__(super_users=(), allow_everyone_if_no_acl_found=False)

    def authorize(
        self,
        acls: AclIndex,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> AclDecision:
        return AclDecision(operation is not AclOperation.CLUSTER_ACTION, BuiltInRule.SUPER_USER)


def throttled() -> float:
    return registry().get_sample_value("klamm_throttled_requests_total", {"quota": REQUEST_PERCENTAGE}) or 0.0


def test_above_the_request_time_quota_calls_to_a_coordinator_wait(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, authorizer=ClientsOnly()) as running:
            assert not (await running.admin.alter_client_quotas(QUOTA)).error_code
            coordinator = running.coordinators[1].server

            async def knows() -> bool | None:
                return bool(coordinator._link.image.client_quotas) or None

            await eventually(knows)
            before = throttled()
            for _ in range(2):
                await running.coordinator(1).list_groups(pb.ListGroupsRequest(), timeout=patience())
            assert throttled() == before + 1

    asyncio.run(scenario())


def test_above_the_request_time_quota_calls_to_a_controller_wait(tmp_path: Path) -> None:
    async def scenario() -> None:
        properties = {"node.id": "1", "listeners": f"GRPC://{HOST}:0", "metadata.log.dir": str(tmp_path)}
        running = await run(ControllerServer(load(ControllerConfig, properties), authorizer=ClientsOnly()))
        async with aio.insecure_channel(f"{HOST}:{running.port}") as channel:
            admin = RawStub(channel, ADMIN)
            assert not (await admin.alter_client_quotas(QUOTA)).error_code
            before = throttled()
            for _ in range(2):
                await admin.describe_client_quotas(c.DescribeClientQuotasRequest(), timeout=patience())
            assert throttled() == before + 1
        await running.stop()

    asyncio.run(scenario())
