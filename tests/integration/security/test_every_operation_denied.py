"""Tests every RPC of the contracts at every server, with a client certificate but no access control entry.

Each call is refused, or answered as if no resource existed. Kafka's APIs are in
`tests/integration/coordinator/test_every_operation_denied.py` and `test_no_leak.py`.
"""

from __future__ import annotations

import grpc

from klamm.errors import ErrorCode
from tests.support.canary_cluster import CANARY, CanaryCluster
from tests.support.every_rpc import Caller, Rpc, codes_of, every_rpc

MISSING = "never-there-0"
assert len(MISSING) == len(CANARY)
REFUSALS = {
    int(code)
    for code in (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
}
FOR_ANYBODY = {
    "/klamm.v1.Server/DescribeServer",
    "/klamm.v1.Admin/DescribeCluster",
    "/klamm.v1.Authentication/SaslHandshake",
    "/klamm.v1.Authentication/SaslAuthenticate",
}
LEFT_OUT = {
    "/klamm.v1.Coordinator/ListGroups",
    "/klamm.v1.Coordinator/ListLedgers",
    "/klamm.v1.Coordinator/ListTransactions",
}
"""Lists, which have nothing in them then."""


def outcome(caller: Caller, rpc: Rpc, name: str) -> str:
    """Returns `refused`, `left out` or `not served`, or a description of any other outcome."""
    try:
        answer = caller.call(rpc, rpc.request(name))
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return "not served"
        return "refused" if error.code() is grpc.StatusCode.PERMISSION_DENIED else f"{error.code()} {error.details()}"
    codes = codes_of(answer)
    if not codes and rpc.path in LEFT_OUT and not answer.ListFields():
        return "left out"
    if codes and codes <= REFUSALS:
        return "refused"
    return f"answered {answer}"


def test_every_rpc_is_denied_at_every_server(canary: CanaryCluster) -> None:
    cluster = canary.cluster
    stores = cluster.stores("stranger")
    served: set[str] = set()
    wrong: list[str] = []
    for address in (cluster.controller_grpc, cluster.grpc, cluster.coordinator_grpc):
        with Caller(address, stores) as caller:
            for rpc in every_rpc():
                came_of_it = outcome(caller, rpc, CANARY)
                if came_of_it == "not served":
                    continue
                served.add(rpc.path)
                if rpc.path in FOR_ANYBODY:
                    continue
                if came_of_it not in ("refused", "left out") or came_of_it != outcome(caller, rpc, MISSING):
                    wrong.append(f"{rpc.path} at {address}: {came_of_it}")
    assert not wrong, "\n".join(wrong)
    assert served >= {rpc.path for rpc in every_rpc() if not rpc.path.startswith("/klamm.v1.Authentication/")}
