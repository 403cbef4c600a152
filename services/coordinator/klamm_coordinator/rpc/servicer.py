"""The Coordinator service: its families of calls as one servicer, each call counted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from klamm.wire.service import COORDINATOR, methods
from klamm_coordinator.metrics import REQUESTS
from klamm_coordinator.rpc.admin import GroupAdminRpc
from klamm_coordinator.rpc.consumer_groups import ConsumerGroupsRpc
from klamm_coordinator.rpc.groups import GroupsRpc
from klamm_coordinator.rpc.ledgers import LedgersRpc
from klamm_coordinator.rpc.offsets import OffsetsRpc
from klamm_coordinator.rpc.transactions import TransactionsRpc
from klamm_coordinator.rpc.txn_offsets import TxnOffsetsRpc

Rpc = Callable[[Any, Any], Awaitable[Any]]


class CoordinatorServicer:
    """What `RpcServer.add_service(COORDINATOR, ...)` takes."""

    def __init__(
        self,
        groups: GroupsRpc,
        consumer_groups: ConsumerGroupsRpc,
        offsets: OffsetsRpc,
        admin: GroupAdminRpc,
        txn_offsets: TxnOffsetsRpc,
        transactions: TransactionsRpc,
        ledgers: LedgersRpc,
    ) -> None:
        families = (groups, consumer_groups, offsets, admin, txn_offsets, transactions, ledgers)
        for method in methods(COORDINATOR):
            (family,) = (one for one in families if hasattr(one, method.name))
            setattr(self, method.name, _counted(method.path.rpartition("/")[2], getattr(family, method.name)))


def _counted(name: str, function: Rpc) -> Rpc:
    requests = REQUESTS.labels(name)

    async def call(request: Any, context: Any) -> Any:
        requests.inc()
        return await function(request, context)

    return call
