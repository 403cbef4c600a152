"""Tests every Kafka API through the whole cluster, from a client without an access control entry.

Each call is refused with Kafka's code, or the answer leaves the resources out. The client learns nothing about existing
resources. Servers and clients differ by their address here: callers at 127.0.0.1 are servers.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from klamm.acls import AclDecision, AclOperation, BuiltInRule, ResourceType
from klamm.errors import ErrorCode
from klamm.wire.v1 import coordinator_pb2 as pb
from klamm.wire.v1.broker_pb2 import COORDINATOR_KEY_TYPE_TRANSACTION
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.served_apis import SPOKEN
from klamm_server.metadata.acl_index import AclIndex
from klamm_server.security.acls.authorizer import StandardAuthorizer
from tests.support.coordinator_cluster import Cluster, cluster, error_of, eventually
from tests.support.every_request import BY_NAME, codes_in, requests, requests_by_name
from tests.support.kafka_wire import KafkaWire

SERVERS, CLIENT = "127.0.0.1", "127.0.0.2"
CANARY, MISSING = "canary", "never-there"
CODES = {
    int(code)
    for code in (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
}
FOR_ANYBODY = {ApiKey.API_VERSIONS, ApiKey.DESCRIBE_CLUSTER}
OF_A_LOGIN = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
"""The requests of a login. The client has no principal yet, so no ACL applies to it."""
LEFT_OUT = {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS}
"""Requests for lists. A client without rights gets an empty list and no error."""


class ServersByAddress(StandardAuthorizer):
    """An authorizer that treats callers at the servers' address as servers."""

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
        if host in (SERVERS, "::1"):
            return AclDecision(True, BuiltInRule.SUPER_USER)
        return super().authorize(acls, principal, host, operation, resource_type, name)


def ask_everything(bootstrap: str) -> None:
    asked = {**requests(CANARY), **requests_by_name(CANARY)}
    missing = {**requests(MISSING), **requests_by_name(MISSING)}
    assert set(asked) >= set(SPOKEN) - {ApiKey.DESCRIBE_TOPIC_PARTITIONS} - OF_A_LOGIN
    wrong: list[str] = []
    for api_key, fields in asked.items():
        version = BY_NAME.get(api_key, SPOKEN[api_key].max)
        with KafkaWire(bootstrap, source=CLIENT) as wire:
            answer = wire.ask(api_key, version, fields)
            of_missing = wire.ask(api_key, version, missing[api_key])
        if api_key in FOR_ANYBODY:
            continue
        codes = codes_in(answer)
        expected = codes == {0} if api_key in LEFT_OUT else codes & CODES and codes <= CODES | {0}
        leaks = (
            CANARY in str(answer) if api_key in LEFT_OUT else str(answer).replace(CANARY, MISSING) != str(of_missing)
        )
        if not expected or leaks:
            wrong.append(f"{api_key.name}: {answer}, {of_missing}")
    assert not wrong, "\n".join(wrong)


async def set_up(running: Cluster) -> None:
    """Creates a topic, a group and a transactional id."""
    await running.create_topic(CANARY)
    offset = pb.GroupOffset(topic=CANARY, offset=17, leader_epoch=-1)
    commit = pb.OffsetCommitRequest(group_id=CANARY, generation_id=-1, offsets=[offset])
    assert error_of(await running.ask(CANARY, "offset_commit", commit)) == 0
    init = pb.InitTransactionalIdRequest(transactional_id=CANARY, transaction_timeout_ms=1_000, producer_id=-1)
    assert error_of(await running.ask(CANARY, "init_producer_id", init, COORDINATOR_KEY_TYPE_TRANSACTION)) == 0


def test_every_operation_denied(tmp_path: Path) -> None:
    async def run() -> None:
        async with cluster(tmp_path, authorizer=ServersByAddress(), of_all=True) as running:
            await set_up(running)
            image = running.broker.server._replicas.image

            async def all_loaded() -> bool | None:
                answer = await running.coordinator(1).list_transactions(pb.ListTransactionsRequest())
                groups = await running.coordinator(1).list_groups(pb.ListGroupsRequest())
                return None if answer.error_code or groups.error_code else True

            await eventually(all_loaded)
            (port,) = {listener.port for listener in image.brokers[1].listeners if listener.name == "PLAINTEXT"}
            await asyncio.to_thread(ask_everything, f"127.0.0.1:{port}")
            assert set(running.broker.server._replicas.image.topics_by_name) >= {CANARY, "t"}

    asyncio.run(run())
