"""Transactions: one shard of `__transaction_state` as a pure state machine (KIP-98, 360, 588, 890)."""
