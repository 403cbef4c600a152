"""The way to the brokers: the shards' log."""
