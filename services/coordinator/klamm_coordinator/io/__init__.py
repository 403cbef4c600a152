"""Around the rules: a shard's shell, its log on the brokers, what else it has done by other servers, and metrics."""
