"""The calls of the Coordinator service, of all families."""

from __future__ import annotations

from klamm.wire.service import COORDINATOR, methods
from klamm_coordinator.rpc.admin import GroupAdminRpc
from klamm_coordinator.rpc.consumer_groups import ConsumerGroupsRpc
from klamm_coordinator.rpc.groups import GroupsRpc
from klamm_coordinator.rpc.ledgers import LedgersRpc
from klamm_coordinator.rpc.offsets import OffsetsRpc
from klamm_coordinator.rpc.transactions import TransactionsRpc
from klamm_coordinator.rpc.txn_offsets import TxnOffsetsRpc


class Calls:
    """One coroutine per RPC, named in snake_case."""

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
            setattr(self, method.name, getattr(family, method.name))
