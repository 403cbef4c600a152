"""The type of one step of a shard of transactions."""

from __future__ import annotations

from klamm_coordinator.runtime.turn import Turn
from klamm_coordinator.transaction_shard.records import ShardRecord
from klamm_coordinator.transaction_shard.settings import TransactionSettings

TransactionTurn = Turn[TransactionSettings, ShardRecord]
