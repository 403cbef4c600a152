"""Batch ledgers: how many transactions of one Spark batch count as one, and count once."""
