"""The objects that answer the calls of the Coordinator service."""

from __future__ import annotations

from dataclasses import dataclass

from klamm_coordinator.rpc.admin import GroupAdminRpc
from klamm_coordinator.rpc.classic_groups import ClassicGroupsRpc
from klamm_coordinator.rpc.consumer_groups import ConsumerGroupsRpc
from klamm_coordinator.rpc.holds import HoldsRpc
from klamm_coordinator.rpc.lag import LagRpc
from klamm_coordinator.rpc.ledgers import LedgersRpc
from klamm_coordinator.rpc.offsets import OffsetsRpc
from klamm_coordinator.rpc.transactions import TransactionsRpc
from klamm_coordinator.rpc.txn_offsets import TxnOffsetsRpc


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The objects that answer the calls, one for each family of calls."""

    groups: ClassicGroupsRpc
    consumer_groups: ConsumerGroupsRpc
    offsets: OffsetsRpc
    holds: HoldsRpc
    admin: GroupAdminRpc
    lag: LagRpc
    txn_offsets: TxnOffsetsRpc
    transactions: TransactionsRpc
    ledgers: LedgersRpc
