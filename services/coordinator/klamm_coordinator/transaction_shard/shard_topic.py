"""The description of `__transaction_state` for the log of a shard of transactions."""

from __future__ import annotations

from klamm.model import TRANSACTION_STATE_TOPIC
from klamm_coordinator.runtime.shard_topic import ShardTopic
from klamm_coordinator.transaction.records import TransactionRecord
from klamm_coordinator.transaction_shard.records import encode_shard_record

TRANSACTIONS = ShardTopic(name=TRANSACTION_STATE_TOPIC, encode=encode_shard_record, claim=TransactionRecord("", None))
