"""The type of one step of a shard of transactions."""

from __future__ import annotations

from klamm_coordinator.runtime.event_context import EventContext
from klamm_coordinator.transaction_shard.records import ShardRecord
from klamm_coordinator.transaction_shard.settings import TransactionSettings

TransactionContext = EventContext[TransactionSettings, ShardRecord]
