"""The I/O around the rules: the shell of a shard, its log on the brokers, its calls to other servers, and metrics."""
